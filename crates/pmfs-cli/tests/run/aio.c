/* libaio's calls from threads that share a context and its control blocks: who takes a completion
 * gives its block to the next one at once, while who submitted it may still be in that call. */
#include "check.h"
#include <linux/aio_abi.h>
#include <sched.h>
#include <stdatomic.h>

#define PAGE 4096
#define PAGES 64
#define THREADS 6
#define BLOCKS 8
/* The file ends within its last page. */
#define TAIL 100
#define SIZE ((PAGES - 1) * PAGE + TAIL)

enum kind { READS, READS_VECTOR, READS_TAIL, READS_BEHIND, WRITES, WRITES_VECTOR, SYNCS, KINDS };

struct block {
    struct iocb control;
    enum kind kind;
    int page;
    long wanted;
    struct iovec parts[2];
    unsigned char buffer[PAGE];
    struct block *next;
};

static aio_context_t context;
static int fd;
static struct block blocks[BLOCKS], *idle;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_long completed[KINDS];
static atomic_int over, under_way;

static unsigned char byte_of(int page) {
    return page + 1;
}

static struct block *take(void) {
    pthread_mutex_lock(&lock);
    struct block *block = idle;
    if (block)
        idle = block->next;
    pthread_mutex_unlock(&lock);
    return block;
}

static void give(struct block *block) {
    pthread_mutex_lock(&lock);
    block->next = idle;
    idle = block;
    pthread_mutex_unlock(&lock);
}

static void prepare(struct block *block, enum kind kind, int page) {
    int vector = kind == READS_VECTOR || kind == WRITES_VECTOR, writes = kind == WRITES || kind == WRITES_VECTOR;
    block->kind = kind;
    block->page = kind == READS_TAIL ? PAGES - 1 : kind == READS_BEHIND ? PAGES : page;
    block->wanted = kind == SYNCS || kind == READS_BEHIND ? 0 : kind == READS_TAIL ? TAIL : PAGE;
    memset(block->buffer, writes ? byte_of(page) : 0xff, PAGE);
    block->parts[0] = (struct iovec){block->buffer, 1000};
    block->parts[1] = (struct iovec){block->buffer + 1000, PAGE - 1000};
    static const int operations[] = {IOCB_CMD_PREAD, IOCB_CMD_PREADV, IOCB_CMD_PREAD, IOCB_CMD_PREAD, IOCB_CMD_PWRITE, IOCB_CMD_PWRITEV, IOCB_CMD_FDSYNC};
    block->control = (struct iocb){.aio_data = (unsigned long)block, .aio_lio_opcode = operations[kind], .aio_fildes = fd};
    if (kind != SYNCS) {
        block->control.aio_buf = vector ? (unsigned long)block->parts : (unsigned long)block->buffer;
        block->control.aio_nbytes = vector ? 2 : PAGE;
        block->control.aio_offset = (long)block->page * PAGE;
    }
}

static void check(struct block *block, const struct io_event *event) {
    CHECK(event->res == block->wanted);
    CHECK((struct block *)event->data == block && event->obj == (unsigned long)&block->control);
    unsigned char byte = byte_of(block->page);
    for (long at = 0; at < block->wanted; at++)
        if (block->buffer[at] != byte) {
            CHECK(!"the buffer has the page's bytes");
            break;
        }
    completed[block->kind]++;
}

static void *work(void *number) {
    unsigned seed = (unsigned long)number;
    while (!over && !failures) {
        /* Several at once, and some as they were. */
        struct iocb *some[2];
        int count = 0;
        for (struct block *block; count < 2 && (block = take());) {
            int again = block->control.aio_data && rand_r(&seed) % 4 == 0;
            if (!again)
                prepare(block, rand_r(&seed) % KINDS, rand_r(&seed) % (PAGES - 1));
            else if (block->kind < WRITES)
                memset(block->buffer, 0xff, PAGE);
            some[count++] = &block->control;
        }
        for (int done = 0; done < count;) {
            long answer = syscall(SYS_io_submit, context, count - done, some + done);
            CHECK(answer > 0);
            if (answer <= 0)
                return NULL;
            done += answer;
            under_way += answer;
        }
        struct io_event events[BLOCKS];
        struct timespec moment = {0, 1000000};
        long got = syscall(SYS_io_getevents, context, 1, 3, events, &moment);
        for (long at = 0; at < got; at++, under_way--) {
            struct block *block = (struct block *)events[at].data;
            check(block, events + at);
            give(block);
        }
    }
    return NULL;
}

/* Each signal is handled at once, and ends the wait that it meets: none waits with the
 * call for a completion. */
static atomic_long handled, ended;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static void *wait_for_signals(void *unused) {
    struct io_event event;
    while (!over) {
        long answer = syscall(SYS_io_getevents, context, 1, 1, &event, NULL);
        int why = errno;
        CHECK(over || (answer == -1 && why == EINTR));
        ended++;
    }
    return unused;
}

static void signals(void) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    NEED(sigaction(SIGUSR1, &action, NULL) == 0);
    pthread_t thread;
    over = 0;
    NEED(pthread_create(&thread, NULL, wait_for_signals, NULL) == 0);
    /* Fewer where a machine is so busy that each takes a turn of its scheduler. */
    time_t began = time(NULL);
    for (int sent = 0; sent < 100000 && time(NULL) - began < 6 && !failures; sent++) {
        long before = handled;
        time_t start = time(NULL);
        /* Somewhere between the handler and the next wait. */
        for (volatile int turns = rand() % 4000; turns > 0; turns--)
            ;
        NEED(pthread_kill(thread, SIGUSR1) == 0);
        while (handled == before && !failures) {
            CHECK(time(NULL) - start < 10);
            sched_yield();
        }
    }
    CHECK(ended > 0);
    over = 1;
    struct iocb *one[] = {&blocks->control};
    prepare(blocks, SYNCS, 0);
    NEED(syscall(SYS_io_submit, context, 1, one) == 1);
    pthread_join(thread, NULL);
}

/* What it cannot be done to is told by the completion, or at once; and how waits end otherwise. */
static void answers(void) {
    struct block *block = blocks;
    struct iocb *one[] = {&block->control};
    struct io_event events[2];
    struct timespec none = {0, 0}, moment = {0, 2000000};
    /* What the threads have left. */
    for (; under_way > 0; under_way--)
        NEED(syscall(SYS_io_getevents, context, 1, 1, events, NULL) == 1);
    prepare(block, WRITES, 0);
    block->control.aio_offset = -4096;
    FAILS(EINVAL, syscall(SYS_io_submit, context, 1, one));
    prepare(block, READS_TAIL, 0);
    struct iocb before = block->control;
    CHECK(syscall(SYS_io_submit, context, 1, one) == 1);
    CHECK(syscall(SYS_io_getevents, context, 1, 2, events, NULL) == 1);
    check(block, events);
    before.aio_key = block->control.aio_key;
    CHECK(memcmp(&before, &block->control, sizeof before) == 0);
    CHECK(syscall(SYS_io_submit, context, 1, one) == 1);
    CHECK(syscall(SYS_io_getevents, context, 2, 2, events, &moment) == 1);
    check(block, events);
    CHECK(syscall(SYS_io_getevents, context, 1, 2, events, &none) == 0);
    CHECK(syscall(SYS_io_getevents, context, 1, 2, events, &moment) == 0);
    FAILS(EINVAL, syscall(SYS_io_getevents, context, 2, 1, events, &none));
    FAILS(EINVAL, syscall(SYS_io_getevents, context, -1, 1, events, &none));
    FAILS(EINVAL, syscall(SYS_io_getevents, 1, 1, 1, events, &none));
    FAILS(EFAULT, syscall(SYS_io_getevents, context, 1, 1, events, (void *)8));
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    char path[300];
    snprintf(path, sizeof path, "%s/file", dir);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(fd >= 0);
    for (int page = 0; page < PAGES; page++) {
        unsigned char bytes[PAGE];
        memset(bytes, byte_of(page), PAGE);
        NEED(pwrite(fd, bytes, page < PAGES - 1 ? PAGE : TAIL, (long)page * PAGE) > 0);
    }
    NEED(syscall(SYS_io_setup, BLOCKS, &context) == 0);
    for (int at = 0; at < BLOCKS; at++)
        give(blocks + at);
    pthread_t threads[THREADS];
    for (unsigned long at = 0; at < THREADS; at++)
        NEED(pthread_create(threads + at, NULL, work, (void *)(at + 1)) == 0);
    struct timespec while_it_runs = {3, 0};
    nanosleep(&while_it_runs, NULL);
    over = 1;
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    for (int kind = 0; kind < KINDS; kind++)
        CHECK(completed[kind] > 0);
    answers();
    signals();
    NEED(syscall(SYS_io_destroy, context) == 0);
    say("control blocks: %d failures\n", failures);
    return failures != 0;
}
