/* Stray stores into the pool's mapping: after each call, from threads old and new, in
 * handlers and in children.
 *
 * The argument says how the pool is closed: "none", "pages" or "keys". On a plain
 * directory nothing is mapped, and the calls alone are made. What is said is the tree at
 * the end, the same in all cases; lines that begin with "strays" are of the pool alone. */
#include "check.h"
#include <dirent.h>
#include <setjmp.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

/* After each call so many, and there are some sixty. */
#define STRAYS 24

static char *pool;
static size_t pool_bytes;
/* tmpfs has had them since Linux 6.6. */
static int attributes;
static int keys, is_open;
static volatile unsigned long made, arrived;

static __thread sigjmp_buf back;
static __thread volatile sig_atomic_t trying;
static void refused(int signal, siginfo_t *info, void *context) {
    (void)context;
    /* Such an address alone, and by a page that is there. */
    if (!trying || (char *)info->si_addr < pool || (char *)info->si_addr >= pool + pool_bytes)
        abort();
    siglongjmp(back, signal);
}

/* Whether a store gets there. */
static int gets_to(volatile char *at) {
    int was = trying, got = 0;
    sigjmp_buf outer;
    memcpy(&outer, &back, sizeof outer);
    if (sigsetjmp(back, 1) == 0) {
        trying = 1;
        *at = 0x5a;
        got = 1;
    }
    memcpy(&back, &outer, sizeof outer);
    trying = was;
    __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    if (got)
        __atomic_add_fetch(&arrived, 1, __ATOMIC_RELAXED);
    return got;
}

/* The engine's mapping: the longest of the pool's file. */
static int find_pool(const char *path) {
    char line[4400];
    FILE *maps = fopen("/proc/self/maps", "r");
    NEED(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char *name = strchr(line, '/');
        if (!name || sscanf(line, "%lx-%lx", &from, &to) != 2)
            continue;
        name[strcspn(name, "\n")] = 0;
        if (strcmp(name, path) == 0 && to - from > pool_bytes) {
            pool = (char *)from;
            pool_bytes = to - from;
        }
    }
    fclose(maps);
    return pool != NULL;
}

static unsigned long next_random(unsigned long *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

/* Where there is a pool, and it is closed. */
static void strays_of(unsigned long *state, int count) {
    if (!pool || is_open)
        return;
    for (int i = 0; i < count; i++)
        if (gets_to(pool + next_random(state) % pool_bytes))
            failures++;
}

static unsigned long seed = 0x9e3779b97f4a7c15;
static pthread_barrier_t turn;
static volatile int over;

/* Older than the pool's mapping. By keys it goes on all the time; pages are open to it
 * while another thread makes a call. */
static void *older(void *unused) {
    unsigned long state = 88172645463325252;
    (void)unused;
    pthread_barrier_wait(&turn);
    /* By pages it ends behind a barrier that the other waits at: who looked before
     * would leave that one alone there. */
    while (!keys || !over) {
        if (!keys) {
            pthread_barrier_wait(&turn);
            if (over)
                break;
        }
        strays_of(&state, keys ? 1 : 4);
        if (!keys)
            pthread_barrier_wait(&turn);
    }
    return NULL;
}

static void *younger(void *unused) {
    unsigned long state = 1181783497276652981;
    (void)unused;
    strays_of(&state, 4);
    /* It makes a call of its own, and is shut out again. */
    struct stat stat_of;
    CHECK(stat(dir, &stat_of) == 0);
    strays_of(&state, 4);
    return NULL;
}

static void in_handler(int signal) {
    unsigned long state = 2463534242 + signal;
    int was = errno;
    strays_of(&state, 4);
    errno = was;
}

/* What the program's own stores can't reach, the kernel's for it can't either. */
static void by_the_kernel(void) {
    struct stat stat_of;
    int zero = open("/dev/zero", O_RDONLY), fd = open(in("kept"), O_RDONLY);
    char *at = pool + (next_random(&seed) % (pool_bytes / 4096)) * 4096;
    FAILS(EFAULT, read(zero, at, 4096));
    FAILS(EFAULT, read(fd, at, 100));
    FAILS(EFAULT, pread(fd, at + 64, 8, 0));
    FAILS(EFAULT, fstat(fd, (struct stat *)at));
    FAILS(EFAULT, getxattr(in("kept"), "user.kept", at, 16));
    CHECK(stat(in("kept"), &stat_of) == 0);
    close(zero);
    close(fd);
}

/* After a call. */
static void strays(void) {
    if (!pool || is_open)
        return;
    strays_of(&seed, STRAYS);
    if (!keys) {
        pthread_barrier_wait(&turn);
        pthread_barrier_wait(&turn);
    }
    raise(SIGUSR1);
}

#define CALL(what)                                                                                           \
    do {                                                                                                     \
        CHECK(what);                                                                                         \
        strays();                                                                                            \
    } while (0)

static void files(void) {
    char text[8192], more[64];
    struct iovec parts[2] = {{more, 10}, {text, 100}};
    memset(text, 't', sizeof text);
    int fd;
    CALL((fd = open(in("file"), O_RDWR | O_CREAT, 0644)) >= 0);
    CALL(write(fd, text, 64) == 64);
    CALL(write(fd, text, sizeof text) == sizeof text);
    CALL(pwrite(fd, "small", 5, 30) == 5);
    CALL(pwrite(fd, text, 4096, 4096) == 4096);
    CALL(pread(fd, more, 64, 0) == 64);
    CALL(lseek(fd, 100, SEEK_SET) == 100);
    CALL(read(fd, more, 64) == 64);
    CALL(writev(fd, parts, 2) == 110);
    CALL(readv(fd, parts, 2) == 110);
    CALL(ftruncate(fd, 70000) == 0);
    CALL(fallocate(fd, 0, 0, 200000) == 0);
    CALL(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096) == 0);
    CALL(lseek(fd, 0, SEEK_HOLE) >= 0);
    CALL(fsync(fd) == 0);
    CALL(fdatasync(fd) == 0);
    int copy;
    CALL((copy = open(in("copy"), O_RDWR | O_CREAT | O_APPEND, 0600)) >= 0);
    CALL(write(copy, "appended", 8) == 8);
    off_t from = 0;
    CALL(sendfile(fd, copy, &from, 8) == 8);
    CALL(fcntl(copy, F_SETFL, 0) == 0);
    CALL(copy_file_range(fd, NULL, copy, NULL, 5000, 0) == 5000);
    int other;
    CALL((other = dup(copy)) >= 0);
    CALL(flock(copy, LOCK_EX) == 0);
    CALL(flock(copy, LOCK_UN) == 0);
    struct flock lock = {.l_type = F_WRLCK, .l_len = 10};
    CALL(fcntl(copy, F_SETLK, &lock) == 0);
    CALL(fcntl(copy, F_GETLK, &lock) == 0);
    CALL(close(other) == 0);
    CALL(close(copy) == 0);
    CALL(truncate(in("copy"), 3000) == 0);
    CALL(close(fd) == 0);
}

static void names(void) {
    char got[256];
    struct stat stat_of;
    struct statx more;
    struct statfs room;
    struct timespec times[2] = {{1000, 5}, {2000, 6}};
    CALL(mkdir(in("d"), 0755) == 0);
    CALL(mkdir(in("d/e"), 0755) == 0);
    CALL(symlink("to/nowhere", in("d/link")) == 0);
    CALL(readlink(in("d/link"), got, sizeof got) == 10);
    CALL(link(in("file"), in("d/hard")) == 0);
    CALL(rename(in("d/hard"), in("d/moved")) == 0);
    CALL(rename(in("d/moved"), in("d/e/moved")) == 0);
    CALL(renameat2(AT_FDCWD, in("copy"), AT_FDCWD, in("d/e/moved"), RENAME_EXCHANGE) == 0);
    CALL(mknod(in("d/fifo"), S_IFIFO | 0600, 0) == 0);
    CALL(stat(in("file"), &stat_of) == 0);
    CALL(lstat(in("d/link"), &stat_of) == 0);
    CALL(statx(AT_FDCWD, in("file"), 0, STATX_ALL, &more) == 0);
    CALL(statfs(dir, &room) == 0);
    CALL(access(in("file"), R_OK) == 0);
    CALL(chmod(in("file"), 0640) == 0);
    CALL(chown(in("file"), geteuid(), getegid()) == 0);
    CALL(utimensat(AT_FDCWD, in("file"), times, 0) == 0);
    if (attributes) {
        CALL(setxattr(in("kept"), "user.more", "value", 5, 0) == 0);
        CALL(getxattr(in("kept"), "user.more", got, sizeof got) == 5);
        CALL(listxattr(in("kept"), got, sizeof got) > 0);
        CALL(removexattr(in("kept"), "user.more") == 0);
    }
    int nameless;
    CALL((nameless = open(dir, O_TMPFILE | O_RDWR, 0600)) >= 0);
    CALL(write(nameless, "named later", 11) == 11);
    char number[64];
    snprintf(number, sizeof number, "/proc/self/fd/%d", nameless);
    CALL(linkat(AT_FDCWD, number, AT_FDCWD, in("later"), AT_SYMLINK_FOLLOW) == 0);
    CALL(close(nameless) == 0);
    CALL(mkdir(in("gone"), 0755) == 0);
    CALL(rmdir(in("gone")) == 0);
    close(open(in("gone"), O_WRONLY | O_CREAT, 0600));
    CALL(unlink(in("gone")) == 0);
    DIR *all = opendir(in("d"));
    int count = 0;
    while (readdir(all))
        count++;
    CALL(count == 5);
    CALL(closedir(all) == 0);
}

/* A mapping that the program was given is its own to store to; and a child is shut out
 * as its parent is. */
static void mappings_and_children(void) {
    int fd = open(in("kept"), O_RDWR);
    char *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CALL(mapped != MAP_FAILED);
    mapped[1] = 'M';
    strays();
    CALL(msync(mapped, 4096, MS_SYNC) == 0);
    CALL(munmap(mapped, 4096) == 0);
    CHECK(close(fd) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        unsigned long state = 362436069;
        failures = 0;
        strays_of(&state, STRAYS);
        CHECK(chmod(in("d"), 0711) == 0);
        strays_of(&state, STRAYS);
        _exit(failures != 0);
    }
    CALL(pid > 0 && child_ends_with(pid, 0));
    pid = vfork();
    if (pid == 0)
        _exit(chmod(in("d"), 0701) != 0);
    CALL(pid > 0 && child_ends_with(pid, 0));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, younger, NULL) == 0 && pthread_join(thread, NULL) == 0);
    strays();
}

/* Where the file's bytes lie a store is tried, too: it shows, if it arrives. */
static void at_the_files_own_bytes(void) {
    char text[65], got[65] = "";
    memset(text, 0, sizeof text);
    for (int i = 0; i < 64; i++)
        text[i] = (char)('0' + (i * 7 + 3) % 60);
    int fd = open(in("bytes"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    /* A block, so that it lies in a page of its own. */
    CHECK(write(fd, text, 64) == 64 && ftruncate(fd, 4096) == 0);
    if (pool) {
        char *there = memmem(pool, pool_bytes, text, 64);
        NEED(there != NULL && there != text);
        int got_there = gets_to(there + 5);
        CHECK(pread(fd, got, 64, 0) == 64);
        say("strays at the file's own bytes: %s\n", got_there ? "arrived" : "refused");
        CHECK(got_there == (memcmp(got, text, 64) != 0) && got_there == is_open);
        if (got_there)
            CHECK(pwrite(fd, text, 64, 0) == 64);
    }
    close(fd);
}

/* Name, mode, size and a sum of the bytes of everything. */
static void tell(const char *path) {
    struct stat stat_of;
    char text[4096];
    unsigned sum = 5381;
    ssize_t len;
    CHECK(lstat(in(path), &stat_of) == 0);
    if (S_ISREG(stat_of.st_mode)) {
        int fd = open(in(path), O_RDONLY);
        while ((len = read(fd, text, sizeof text)) > 0)
            for (ssize_t i = 0; i < len; i++)
                sum = sum * 33 + (unsigned char)text[i];
        close(fd);
    }
    say("%s %o %u %ld %u\n", path, stat_of.st_mode, (unsigned)stat_of.st_nlink,
        S_ISREG(stat_of.st_mode) ? (long)stat_of.st_size : 0, sum);
}

int main(int argc, char **argv) {
    NEED(argc == 4);
    keys = strcmp(argv[1], "keys") == 0;
    is_open = strcmp(argv[1], "none") == 0;
    dir = argv[3];
    struct sigaction faults = {.sa_sigaction = refused, .sa_flags = SA_SIGINFO};
    struct sigaction user = {.sa_handler = in_handler};
    NEED(sigaction(SIGSEGV, &faults, NULL) == 0 && sigaction(SIGUSR1, &user, NULL) == 0);
    pthread_barrier_init(&turn, NULL, 2);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, older, NULL) == 0);
    close(file_with("kept", "kept through all of it"));
    attributes = setxattr(in("kept"), "user.kept", "value", 5, 0) == 0;
    int found = find_pool(argv[2]);
    CHECK(attributes || !found);
    int tried = found && !is_open;
    if (tried)
        pthread_barrier_wait(&turn);
    at_the_files_own_bytes();
    files();
    names();
    mappings_and_children();
    if (tried) {
        by_the_kernel();
        over = 1;
        if (!keys)
            pthread_barrier_wait(&turn);
        pthread_join(thread, NULL);
        CHECK(made >= 1000);
        CHECK(arrived == 0);
    }
    for (const char **path = (const char *[]){"kept", "file", "copy", "bytes", "later", "d", "d/e", "d/link", "d/fifo",
                                              "d/e/moved", NULL};
         *path; path++)
        tell(*path);
    if (found)
        say("strays: %lu of %lu arrived\n", arrived, made);
    return failures != 0;
}
