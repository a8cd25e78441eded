/* Children that share their parent's memory and little else: what they touch first, what
 * they lock, and what they change of themselves must not be taken for the parent's. */
#include "check.h"
#include <sched.h>
#include <spawn.h>

extern char **environ;
static char got[4096];
static const char *self;

/* Each in a process of its own, so that nothing of the directory was touched before. */
static void alone(void (*scene)(void)) {
    pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        failures = 0;
        scene();
        _exit(failures != 0);
    }
    CHECK(child_ends_with(pid, 0));
}

/* The parent goes on as if there had been no child. */
static void goes_on(void) {
    int fd = open(in("after"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, "after", 5) == 5 && pread(fd, got, 9, 0) == 5 && close(fd) == 0);
    CHECK(holds("after", "after") && holds("first", "first"));
    struct stat stat;
    CHECK(lstat(in("first"), &stat) == 0 && stat.st_size == 5 && unlink(in("first")) == 0);
}

static void spawn_first(void) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, in("first"), O_WRONLY | O_CREAT, 0644);
    char *argv[] = {"printf", "first", NULL};
    pid_t pid;
    CHECK(posix_spawn(&pid, "/usr/bin/printf", &actions, NULL, argv, environ) == 0 && child_ends_with(pid, 0));
    goes_on();
}

static void looked_before(void) {
    struct stat stat;
    for (int at = 0; at < 3; at++)
        CHECK(lstat(dir, &stat) == 0);
    spawn_first();
}

static int writes_first(void *unused) {
    (void)unused;
    int fd = open(in("first"), O_RDWR | O_CREAT, 0644), other = open(in("first"), O_RDONLY);
    if (fd < 0 || write(fd, "first", 5) != 5 || read(other, got, 9) != 5 || close(fd) != 0)
        return 1;
    return mkdir(in("sub"), 0755) != 0 || rmdir(in("sub")) != 0;
}

static void vfork_first(void) {
    pid_t pid = vfork();
    if (pid == 0)
        _exit(writes_first(NULL));
    CHECK(child_ends_with(pid, 0));
    goes_on();
}

static char stack[1 << 16] __attribute__((aligned(16)));

static void clone_first(void) {
    pid_t pid = clone(writes_first, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    CHECK(pid > 0 && child_ends_with(pid, 0));
    goes_on();
}

/* It maps before the parent has. */
static void map_first(void) {
    NEED(close(file_with("first", "first")) == 0);
    pid_t pid = vfork();
    if (pid == 0) {
        int fd = open(in("first"), O_RDWR);
        char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        _exit(at == MAP_FAILED || memcmp(at, "first", 5) != 0 || munmap(at, 4096) != 0);
    }
    CHECK(child_ends_with(pid, 0));
    int fd = open(in("first"), O_RDWR);
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED && memcmp(at, "first", 5) == 0 && munmap(at, 4096) == 0 && close(fd) == 0);
    goes_on();
}

static void first(void) {
    alone(spawn_first);
    alone(looked_before);
    alone(vfork_first);
    alone(clone_first);
    alone(map_first);
}

static struct flock range(short type, off_t start) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = 10};
}

/* Who a process with no locks of its own finds in the way; 0: nobody. */
static pid_t holder_of(const char *name, off_t start) {
    int answer[2];
    pid_t holder = -1;
    NEED(pipe(answer) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(in(name), O_RDWR);
        struct flock lock = range(F_WRLCK, start);
        NEED(fcntl(fd, F_GETLK, &lock) == 0);
        holder = lock.l_type == F_UNLCK ? 0 : lock.l_pid;
        NEED(write(answer[1], &holder, sizeof holder) == sizeof holder);
        _exit(0);
    }
    NEED(child_ends_with(pid, 0) && read(answer[0], &holder, sizeof holder) == sizeof holder);
    close(answer[0]);
    close(answer[1]);
    return holder;
}

/* A program that was started while its parent has the file locked: it finds it so, and
 * its close gives nothing up. */
static int other_program(const char *path) {
    int fd = open(path, O_RDWR);
    struct flock lock = range(F_WRLCK, 0), seen = lock;
    if (fd < 0 || fcntl(fd, F_SETLK, &lock) != -1 || (errno != EAGAIN && errno != EACCES))
        return 11;
    if (fcntl(fd, F_GETLK, &seen) != 0 || seen.l_pid != getppid())
        return 12;
    lock = range(F_WRLCK, 40);
    return fcntl(fd, F_SETLK, &lock) != 0 || close(fd) != 0 ? 13 : 0;
}

/* A program that has what it locked before exec until its input ends. */
static int program_that_holds(void) {
    char byte;
    while (read(0, &byte, 1) == 1)
        ;
    return 0;
}

static void locked_by_the_parent(void) {
    int fd = file_with("locked", "0123456789"), out = open(in("out"), O_RDWR | O_CREAT, 0644);
    struct flock lock = range(F_WRLCK, 0);
    NEED(out >= 0 && fcntl(fd, F_SETLK, &lock) == 0);
    pid_t me = getpid(), pid;
    /* Before it becomes another program. */
    pid = vfork();
    if (pid == 0) {
        struct flock mine = range(F_WRLCK, 0), seen = mine;
        int again = open(in("locked"), O_RDWR);
        if (fcntl(fd, F_SETLK, &mine) != -1 || fcntl(again, F_GETLK, &seen) != 0 || seen.l_pid != me)
            _exit(1);
        mine = range(F_WRLCK, 20);
        if (fcntl(fd, F_SETLK, &mine) != 0)
            _exit(2);
        close(again);
        mine = range(F_UNLCK, 0);
        _exit(fcntl(fd, F_SETLK, &mine) != 0);
    }
    CHECK(child_ends_with(pid, 0));
    CHECK(holder_of("locked", 0) == me && holder_of("locked", 20) == 0);
    /* With the parent's output in the directory, and with the parent in it. */
    NEED(chdir(dir) == 0);
    for (int turn = 0; turn < 2; turn++) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        if (turn == 0)
            posix_spawn_file_actions_adddup2(&actions, out, 1);
        char *argv[] = {(char *)self, "program", (char *)in("locked"), NULL};
        CHECK(posix_spawn(&pid, self, &actions, NULL, argv, environ) == 0 && child_ends_with(pid, 0));
        CHECK(holder_of("locked", 0) == me && holder_of("locked", 40) == 0);
    }
    /* What a child locks it has as another program, too. */
    int input[2];
    NEED(pipe(input) == 0 && fcntl(input[1], F_SETFD, FD_CLOEXEC) == 0);
    pid = vfork();
    if (pid == 0) {
        struct flock mine = range(F_WRLCK, 60);
        char *none[] = {"none", NULL}, *argv[] = {(char *)self, "hold", "", NULL};
        int kept = open(in("locked"), O_RDWR);
        if (fcntl(kept, F_SETLK, &mine) != 0 || execv("/none", none) != -1 || dup2(input[0], 0) != 0)
            _exit(1);
        execv(self, argv);
        _exit(2);
    }
    CHECK(pid > 0 && holder_of("locked", 60) == pid && holder_of("locked", 0) == me);
    CHECK(close(input[1]) == 0 && child_ends_with(pid, 0) && holder_of("locked", 60) == 0);
    close(input[0]);
    CHECK(holder_of("locked", 0) == me && close(fd) == 0 && holder_of("locked", 0) == 0);
}

static void locks(void) { alone(locked_by_the_parent); }

/* What it sets for itself, and only for itself. */
static void set_apart(void) {
    struct stat stat;
    umask(022);
    NEED(close(file_with("before", "")) == 0 && lstat(in("before"), &stat) == 0 && (stat.st_mode & 0777) == 0644);
    signal(SIGXFSZ, SIG_IGN);
    pid_t pid = vfork();
    if (pid == 0) {
        struct rlimit limit;
        umask(077);
        int fd = open(in("childs"), O_RDWR | O_CREAT | O_TRUNC, 0666);
        if (fstat(fd, &stat) != 0 || (stat.st_mode & 0777) != 0600)
            _exit(1);
        if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || (limit.rlim_cur = 10, setrlimit(RLIMIT_FSIZE, &limit)) != 0)
            _exit(2);
        _exit(write(fd, got, 20) != 10 || write(fd, got, 1) != -1 || errno != EFBIG ? 3 : 0);
    }
    CHECK(child_ends_with(pid, 0));
    int fd = open(in("parents"), O_RDWR | O_CREAT | O_TRUNC, 0666);
    CHECK(fstat(fd, &stat) == 0 && (stat.st_mode & 0777) == 0644);
    CHECK(write(fd, got, 20) == 20);
    /* Another root. */
    pid = vfork();
    if (pid == 0)
        _exit(chroot("/usr") != 0 || chdir("/") != 0 || access(in("before"), F_OK) == 0);
    CHECK(child_ends_with(pid, 0));
    CHECK(access(in("before"), F_OK) == 0 && holds("before", ""));
    int other = open(in("before"), O_WRONLY);
    CHECK(other >= 0 && write(other, "b", 1) == 1 && holds("before", "b"));
    /* A child of its own. */
    pid = vfork();
    if (pid == 0) {
        int own = open(in("before"), O_RDONLY);
        close(other);
        pid_t next = fork();
        if (next == 0)
            _exit(read(own, got, 9) != 1 || close(own) != 0 || fcntl(other, F_GETFD) != -1 || open(in("before"), O_RDONLY) < 0);
        int status;
        _exit(waitpid(next, &status, 0) != next || status != 0);
    }
    CHECK(child_ends_with(pid, 0));
    CHECK(write(other, "c", 1) == 1 && holds("before", "bc"));
}

static void apart(void) { alone(set_apart); }

static int shared[2];

static int with_our_table(void *unused) {
    (void)unused;
    struct flock lock = range(F_WRLCK, 0);
    if (fcntl(shared[1], F_SETLK, &lock) != 0 || close(shared[0]) != 0)
        return 1;
    return open(in("other"), O_RDONLY) != shared[0];
}

/* One table of descriptors. */
static void one_table(int flags) {
    NEED(close(file_with("other", "other")) == 0);
    shared[0] = file_with("file", "file");
    shared[1] = open(in("file"), O_RDWR);
    pid_t pid = clone(with_our_table, stack + sizeof stack, flags | CLONE_FILES | SIGCHLD, NULL);
    CHECK(pid > 0 && child_ends_with(pid, 0));
    CHECK(read(shared[0], got, 9) == 5 && memcmp(got, "other", 5) == 0 && close(shared[0]) == 0);
    FAILS(EBADF, close(shared[0]));
    CHECK(pread(shared[1], got, 9, 0) == 4);
    int plain = open("/dev/zero", O_RDONLY);
    CHECK(plain == shared[0] && read(plain, got, 9) == 9 && got[0] == 0);
}

static void shared_table(void) { one_table(CLONE_VM | CLONE_VFORK); }

static void shared_table_alone(void) { one_table(0); }

static int with_its_own_table(void *unused) {
    (void)unused;
    return close(shared[0]) != 0 || open("/dev/zero", O_RDONLY) != shared[0];
}

/* One memory, two tables of descriptors, and nobody waits for the other. */
static void shared_memory(void) {
    shared[0] = file_with("file", "file");
    pid_t pid = clone(with_its_own_table, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    CHECK(pid > 0 && child_ends_with(pid, 0));
    CHECK(pread(shared[0], got, 9, 0) == 4 && holds("file", "file"));
}

static void tables(void) { alone(shared_table); }

static void others(void) {
    alone(shared_table_alone);
    alone(shared_memory);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    self = arguments[0];
    dir = arguments[2];
    const char *what = arguments[1];
    if (!strcmp(what, "program"))
        return other_program(arguments[2]);
    if (!strcmp(what, "hold"))
        return program_that_holds();
    if (!strcmp(what, "first"))
        first();
    else if (!strcmp(what, "locks"))
        locks();
    else if (!strcmp(what, "apart"))
        apart();
    else if (!strcmp(what, "tables"))
        tables();
    else if (!strcmp(what, "others"))
        others();
    else
        return 98;
    say("%s: %d failures\n", what, failures);
    return failures != 0;
}
