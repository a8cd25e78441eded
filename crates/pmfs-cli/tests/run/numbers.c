/* Numbers: each new descriptor has the lowest that is free, whoever made it and whatever was closed
 * before, and what is closed is not open, whatever call looks. At random, beside a model. */
#include "check.h"
#include <dirent.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>

#define NUMBERS 40

struct number {
    int open, on_exec;
    dev_t dev;
    ino_t ino;
};

static struct number now[NUMBERS];
static unsigned long first, state;
static const char *self, *at;
static int turn;

static unsigned below(unsigned end) {
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return (unsigned)(state >> 33) % end;
}

static int lowest_from(int from) {
    while (from < NUMBERS && now[from].open)
        from++;
    return from;
}

/* Standard output stays. */
static int any(int open) {
    for (int tries = 0; tries < 100; tries++) {
        int number = below(NUMBERS);
        if (number != 1 && now[number].open == open)
            return number;
    }
    return -1;
}

static void broken(const char *what, int number) {
    say("PMFS_NUMBERS_SEED=%lu, turn %d, %s: %d (errno %d)\n", first, turn, what, number, errno);
    _exit(1);
}

static void take(const char *what, int number, int want, int on_exec) {
    struct stat stat;
    if (number != want || fstat(number, &stat) != 0)
        broken(what, number);
    if (number == NUMBERS) {
        close(number);
        return;
    }
    now[number] = (struct number){1, on_exec, stat.st_dev, stat.st_ino};
}

static void gone(int number) { now[number] = (struct number){0}; }

/* Every way in which a number shows that it is not open. */
static void check_closed(int number, int way) {
    char path[64], target[64];
    struct stat stat;
    struct pollfd polled = {.fd = number, .events = POLLIN};
    struct epoll_event event = {0};
    int null = -1, answer = -1;
    errno = 0;
    switch (way) {
    case 0: answer = fstat(number, &stat); break;
    case 1: answer = read(number, path, 4); break;
    case 2: answer = write(number, "x", 1); break;
    case 3: answer = fcntl(number, F_GETFD); break;
    case 4: answer = close(number); break;
    case 5: answer = dup(number); break;
    case 6: answer = openat(number, "some", O_RDONLY); break;
    case 7: answer = fstatat(number, "some", &stat, 0); break;
    case 8: answer = mmap(NULL, 4096, PROT_READ, MAP_SHARED, number, 0) == MAP_FAILED ? -1 : 0; break;
    case 9: answer = lseek(number, 0, SEEK_CUR); break;
    case 10: answer = dup2(number, NUMBERS + 5); break;
    case 11: answer = fchdir(number); break;
    case 12: answer = renameat(AT_FDCWD, "/none", number, "none") == -1 && errno == ENOENT ? (errno = EBADF, -1) : -1; break;
    case 13: answer = ioctl(number, FIONREAD, &null); break;
    case 14: answer = sendfile(1, number, NULL, 1); break;
    case 15: answer = copy_file_range(number, NULL, number, NULL, 1, 0); break;
    case 16:
        answer = poll(&polled, 1, 0) == 1 && polled.revents == POLLNVAL ? -1 : 0;
        errno = EBADF;
        break;
    case 17:
        snprintf(path, sizeof path, "/proc/self/fd/%d", number);
        answer = readlink(path, target, sizeof target);
        errno = answer == -1 && errno == ENOENT ? EBADF : errno;
        break;
    case 18:
        snprintf(path, sizeof path, "/dev/fd/%d", number);
        answer = fstatat(AT_FDCWD, path, &stat, 0);
        errno = answer == -1 && errno == ENOENT ? EBADF : errno;
        break;
    default: {
        int poller = epoll_create1(0);
        answer = number == poller ? -1 : epoll_ctl(poller, EPOLL_CTL_ADD, number, &event);
        int was = number == poller ? EBADF : errno;
        close(poller);
        errno = was;
    }
    }
    if (answer != -1 || errno != EBADF) {
        say("way %d, ", way);
        broken("closed", number);
    }
}

static void check(int number) {
    struct stat stat;
    if (!now[number].open) {
        check_closed(number, below(20));
        return;
    }
    if (fstat(number, &stat) != 0 || stat.st_ino != now[number].ino || stat.st_dev != now[number].dev)
        broken("another file", number);
}

/* All of them, and their flags. */
static void check_all(void) {
    for (int number = 0; number < NUMBERS; number++) {
        int want = now[number].open ? (now[number].on_exec ? 0 : FD_CLOEXEC) : -1;
        if (fcntl(number, F_GETFD) != want)
            broken("flags", number);
        if (now[number].open)
            check(number);
    }
}

/* As a directory of the kernel's lists them. */
static void check_list(void) {
    int seen[NUMBERS] = {0};
    DIR *list = opendir("/proc/self/fd");
    NEED(list);
    for (struct dirent *entry; (entry = readdir(list));)
        if (entry->d_name[0] != '.' && atoi(entry->d_name) < NUMBERS && atoi(entry->d_name) != dirfd(list))
            seen[atoi(entry->d_name)] = 1;
    closedir(list);
    for (int number = 0; number < NUMBERS; number++)
        if (seen[number] != now[number].open)
            broken("list", number);
}

/* A frame of its own, for a child of vfork. */
__attribute__((noinline, noreturn)) static void become_another(int way, const char *open_there) {
    int fd = open(at, O_RDONLY | O_CLOEXEC);
    if (fd != lowest_from(0) || (way == 2 && close(fd) != 0))
        _exit(2);
    if (way == 3)
        _exit(open(at, O_RDONLY) == lowest_from(fd + 1) && (below(2) || close(fd) == 0) ? 0 : 4);
    execl(self, self, open_there, dir, NULL);
    _exit(3);
}

static void in_a_child(int way) {
    char open_there[NUMBERS + 1] = {0};
    for (int number = 0; number < NUMBERS; number++)
        open_there[number] = now[number].open && now[number].on_exec ? '1' : '0';
    pid_t pid = way ? vfork() : fork();
    NEED(pid >= 0);
    if (pid == 0 && way == 0) {
        take("in a child", open(in("a"), O_RDONLY), lowest_from(0), 1);
        check_all();
        _exit(0);
    }
    if (pid == 0)
        become_another(way, open_there);
    if (!child_ends_with(pid, 0))
        broken("child", way);
}

static void handler(int signal) {
    (void)signal;
    int fd = open(at, O_RDONLY);
    if (fd != lowest_from(0) || close(fd) != 0)
        broken("in a handler", fd);
}

static void step(void) {
    static const int flags[] = {0, O_CLOEXEC};
    int number, other, want = lowest_from(0), on_exec = below(2), pair[2];
    int chosen = want > NUMBERS - 8 ? 40 : below(100);
    if (chosen < 40) {
        const char *names[] = {"a", "b", "c", "."};
        int name = below(4);
        take("open", open(in(names[name]), O_RDONLY | (name == 3 ? O_DIRECTORY : 0) | flags[!on_exec]), want, on_exec);
        if (below(3))
            return;
        /* What was opened last is closed first, mostly. */
        if (close(want) != 0)
            broken("close", want);
        gone(want);
    } else if (chosen < 58) {
        if ((number = any(1)) < 0)
            return;
        if (close(number) != 0)
            broken("close", number);
        gone(number);
    } else if (chosen < 62) {
        take("null", open("/dev/null", O_RDWR | flags[!on_exec]), want, on_exec);
    } else if (chosen < 64) {
        take("path", open(in("."), O_PATH | O_DIRECTORY | flags[!on_exec]), want, on_exec);
    } else if (chosen < 66) {
        take("out", open(in("out"), O_RDONLY | flags[!on_exec]), want, on_exec);
    } else if (chosen < 68) {
        NEED(on_exec ? pipe(pair) == 0 : pipe2(pair, O_CLOEXEC) == 0);
        take("pipe", pair[0], want, on_exec);
        take("pipe", pair[1], lowest_from(0), on_exec);
    } else if (chosen < 69) {
        take("event", eventfd(0, on_exec ? 0 : EFD_CLOEXEC), want, on_exec);
    } else if (chosen < 70) {
        take("socket", socket(AF_UNIX, SOCK_STREAM | (on_exec ? 0 : SOCK_CLOEXEC), 0), want, on_exec);
    } else if (chosen < 75) {
        if ((number = any(1)) >= 0)
            take("dup", dup(number), want, 1);
    } else if (chosen < 79) {
        number = any(1), other = any(below(2));
        if (number < 0 || other < 0 || number == other)
            return;
        take("dup3", dup3(number, other, flags[!on_exec]), other, on_exec);
    } else if (chosen < 82) {
        int from = below(NUMBERS / 2);
        if ((number = any(1)) >= 0 && lowest_from(from) < NUMBERS)
            take("from", fcntl(number, on_exec ? F_DUPFD : F_DUPFD_CLOEXEC, from), lowest_from(from), on_exec);
    } else if (chosen < 86) {
        if ((number = any(1)) < 0)
            return;
        /* What was opened with O_PATH has no ioctl. */
        if (below(2) || ioctl(number, on_exec ? FIONCLEX : FIOCLEX) != 0)
            NEED(fcntl(number, F_SETFD, on_exec ? 0 : FD_CLOEXEC) == 0);
        now[number].on_exec = on_exec;
    } else if (chosen < 88) {
        int first = 2 + below(NUMBERS - 2), last = first + below(4), way = below(2) ? CLOSE_RANGE_CLOEXEC : 0;
        if (close_range(first, last, way) != 0)
            broken("range", first);
        for (number = first; number <= last && number < NUMBERS; number++)
            if (way)
                now[number].on_exec = 0;
            else
                gone(number);
    } else if (chosen < 90) {
        in_a_child(below(4));
    } else if (chosen < 91) {
        raise(SIGUSR1);
    } else if (chosen < 92) {
        check_list();
    } else if (chosen < 94) {
        check_all();
    } else {
        check(below(NUMBERS));
        struct stat stat;
        CHECK(fstatat(AT_FDCWD, "/dev/null", &stat, 0) == 0);
    }
}

static pthread_barrier_t together;

/* Others open and close meanwhile; nobody gets what another has. */
static void *beside(void *unused) {
    struct stat stat;
    pthread_barrier_wait(&together);
    for (int i = 0; i < 6000; i++) {
        int fd = open(at, O_RDONLY | (i % 2 ? O_CLOEXEC : 0)), other = i % 50 ? -1 : open("/dev/null", O_RDONLY);
        if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode) || (other >= 0 && (fstat(other, &stat) != 0 || S_ISREG(stat.st_mode))))
            broken("beside others", fd);
        if (close(fd) != 0 || (other >= 0 && close(other) != 0))
            broken("close beside others", fd);
    }
    return unused;
}

static void in_threads(void) {
    pthread_t threads[4];
    NEED(pthread_barrier_init(&together, NULL, 4) == 0);
    for (int i = 0; i < 4; i++)
        NEED(pthread_create(&threads[i], NULL, beside, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    check_all();
    check_list();
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    if (strcmp(arguments[1], "all") != 0) {
        /* After exec: what was to stay open is. */
        for (int number = 0; number < NUMBERS; number++)
            if ((fcntl(number, F_GETFD) == 0) != (arguments[1][number] == '1'))
                broken("after exec", number);
        return 0;
    }
    self = "/proc/self/exe";
    static char room[256];
    snprintf(room, sizeof room, "%s", in("a"));
    at = room;
    for (int name = 0; name < 3; name++)
        close(file_with((const char *[]){"a", "b", "c"}[name], "text"));
    unlink(in("out"));
    NEED(symlink("/dev/null", in("out")) == 0);
    signal(SIGUSR1, handler);
    for (int number = 0; number < NUMBERS; number++) {
        struct stat stat;
        if (fstat(number, &stat) == 0)
            now[number] = (struct number){1, !(fcntl(number, F_GETFD) & FD_CLOEXEC), stat.st_dev, stat.st_ino};
    }
    const char *seed = getenv("PMFS_NUMBERS_SEED");
    state = seed ? strtoul(seed, NULL, 10) : (unsigned long)time(NULL);
    first = state;
    for (turn = 0; turn < 30000; turn++)
        step();
    for (int round = 0; round < 10; round++) {
        in_threads();
        for (int end = turn + 200; turn < end; turn++)
            step();
    }
    say("%d wrong\n", failures);
    return failures != 0;
}
