/* Linked to liburing, which makes system calls of its own: there is none of io_uring
 * here, so nobody hands the kernel a placeholder. */
#include "check.h"
#include <liburing.h>

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    struct io_uring ring;
    int made = io_uring_queue_init(8, &ring, 0);
    CHECK(made == -ENOSYS);
    say("liburing: %d\n", made);
    return failures != 0;
}
