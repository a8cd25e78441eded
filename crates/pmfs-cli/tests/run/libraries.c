/* Libraries besides libc: those in the pool, and those that make system calls of their
 * own. Arguments: what, the library, the directory. */
#include "check.h"
#include <dlfcn.h>

static char got[100];

typedef long reading(int fd, void *to, unsigned long bytes);
typedef long opening(const char *path, long flags);

/* Its calls see what libc's see, or else fail loudly. */
static void own_calls(void *library, int are_served) {
    reading *own_read = (reading *)dlsym(library, "own_read");
    opening *own_open = (opening *)dlsym(library, "own_open");
    int fd = file_with("file", "0123456789");
    long read_own = own_read(fd, got, 10), opened = own_open(in("file"), O_RDONLY);
    if (are_served)
        CHECK(read_own == 10 && memcmp(got, "0123456789", 10) == 0 && opened >= 0 && read(opened, got, 4) == 4);
    else
        CHECK(read_own == -EBADF);
}

int main(int count, char **arguments) {
    NEED(count == 4);
    dir = arguments[3];
    const char *what = arguments[1];
    if (!strcmp(what, "served") || !strcmp(what, "unserved")) {
        for (int round = 0; round < 3; round++) {
            void *library = dlopen(arguments[2], RTLD_NOW | RTLD_LOCAL);
            NEED(library != NULL);
            own_calls(library, !strcmp(what, "served"));
            CHECK(dlclose(library) == 0);
        }
    } else {
        char command[2 * PATH_MAX];
        snprintf(command, sizeof command, "cp %s %s", arguments[2], in("library.so"));
        NEED(system(command) == 0);
        void *library = dlopen(in("library.so"), RTLD_NOW | RTLD_LOCAL);
        if (library == NULL)
            say("%s\n", dlerror());
        CHECK(library != NULL && dlsym(library, "own_read") != NULL && ((opening *)dlsym(library, "own_open"))("/", O_RDONLY) >= 0);
        /* And by a name relative to the directory, once more as a new file, and in a child. */
        NEED(chdir(dir) == 0 && rename("library.so", "other.so") == 0 && system("cp other.so copy.so") == 0);
        void *copy = dlopen("./copy.so", RTLD_NOW | RTLD_LOCAL);
        CHECK(copy != NULL && copy != library && unlink("copy.so") == 0);
        pid_t pid = fork();
        if (pid == 0)
            _exit(((opening *)dlsym(copy, "own_open"))("/", O_RDONLY) < 0);
        CHECK(child_ends_with(pid, 0) && dlclose(copy) == 0);
        CHECK(dlopen(in("none.so"), RTLD_NOW) == NULL && dlopen(in("file"), RTLD_NOW) == NULL);
    }
    say("libraries: %d failures\n", failures);
    return failures != 0;
}
