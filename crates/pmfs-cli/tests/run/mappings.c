/* Mappings of files: what is stored is read, what is written shows, in this process and
 * in others; and all the ways to change what is mapped where. */
#include "check.h"
#include <setjmp.h>

enum { PAGE = 4096, RW = PROT_READ | PROT_WRITE };

static sigjmp_buf back;

static void on_bus(int number) { siglongjmp(back, number); }

/* Whether a touch of it is SIGBUS. */
static int is_bus(volatile char *at) {
    int number = sigsetjmp(back, 1);
    if (!number)
        (void)*at;
    return number == SIGBUS;
}

static int pattern_file(const char *name, int bytes) {
    int fd = open(in(name), O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(fd >= 0);
    char block[PAGE];
    for (int done = 0; done < bytes; done += PAGE) {
        memset(block, 'a' + done / PAGE % 26, PAGE);
        int now = bytes - done < PAGE ? bytes - done : PAGE;
        NEED(write(fd, block, now) == now);
    }
    return fd;
}

static char *map(int fd, size_t bytes, int protection, int flags, off_t at) {
    char *there = mmap(NULL, bytes, protection, flags, fd, at);
    NEED(there != MAP_FAILED);
    return there;
}

static void coherent(void) {
    char got[100];
    int fd = pattern_file("file", 10 * PAGE);
    char *at = map(fd, 10 * PAGE, RW, MAP_SHARED, 0);
    CHECK(at[0] == 'a' && at[PAGE] == 'b' && at[10 * PAGE - 1] == 'j');
    strcpy(at + 5000, "stored");
    CHECK(pread(fd, got, 7, 5000) == 7 && !strcmp(got, "stored"));
    CHECK(pwrite(fd, "written", 7, 5006) == 7 && !memcmp(at + 5000, "storedwritten", 13));
    char *again = map(fd, PAGE, PROT_READ, MAP_SHARED, PAGE);
    CHECK(!memcmp(again + 5000 - PAGE, "storedwritten", 13));
    char *own = map(fd, 2 * PAGE, RW, MAP_PRIVATE, PAGE);
    own[0] = 'X';
    CHECK(at[PAGE] == 'b' && pread(fd, got, 1, PAGE) == 1 && got[0] == 'b');
    CHECK(pwrite(fd, "P", 1, 2 * PAGE) == 1 && own[PAGE] == 'P' && own[0] == 'X');
    /* Whole blocks, a long write, one across the end. */
    static char much[40 * PAGE];
    memset(much, 'M', sizeof much);
    CHECK(pwrite(fd, much, 3 * PAGE, 3 * PAGE) == 3 * PAGE && at[3 * PAGE] == 'M' && at[6 * PAGE - 1] == 'M');
    CHECK(pwrite(fd, much, sizeof much, 9 * PAGE) == sizeof much && at[9 * PAGE] == 'M');
    at[9 * PAGE + 1] = 'S';
    CHECK(pread(fd, got, 2, 9 * PAGE) == 2 && got[1] == 'S');
    CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, PAGE) == 0 && at[PAGE + 904] == 0);
    at[PAGE] = 'h';
    CHECK(pread(fd, got, 1, PAGE) == 1 && got[0] == 'h');
    CHECK(msync(at, 10 * PAGE, MS_SYNC) == 0 && msync(at, PAGE, MS_ASYNC) == 0);
    FAILS(EINVAL, msync(at, PAGE, MS_SYNC | MS_ASYNC));
    /* What is mapped is a buffer like any other, for the file itself too. */
    CHECK(pread(fd, at + 2 * PAGE, PAGE, 4 * PAGE) == PAGE && at[2 * PAGE] == 'M');
    CHECK(pwrite(fd, at, PAGE, 7 * PAGE) == PAGE && at[7 * PAGE] == 'a');
    int pipes[2];
    NEED(pipe(pipes) == 0);
    CHECK(write(pipes[1], at + 5000, 6) == 6 && read(pipes[0], at + 6000, 6) == 6 && at[6000] == at[5000]);
    CHECK(munmap(at, 10 * PAGE) == 0 && munmap(again, PAGE) == 0 && munmap(own, 2 * PAGE) == 0);
    CHECK(pread(fd, got, 6, 5000) == 6);
    close(fd);
}

static void sizes(void) {
    int fd = pattern_file("sized", PAGE + 10);
    char *at = map(fd, 8 * PAGE, RW, MAP_SHARED, 0);
    CHECK(at[PAGE + 9] == 'b' && at[PAGE + 10] == 0 && at[2 * PAGE - 1] == 0 && is_bus(at + 2 * PAGE));
    CHECK(ftruncate(fd, 3 * PAGE) == 0 && at[2 * PAGE] == 0 && at[PAGE + 10] == 0 && is_bus(at + 3 * PAGE));
    CHECK(pwrite(fd, "end", 3, 4 * PAGE) == 3 && at[3 * PAGE] == 0 && !memcmp(at + 4 * PAGE, "end", 4));
    CHECK(is_bus(at + 5 * PAGE));
    at[4 * PAGE] = 'E';
    /* Another process makes it longer. */
    pid_t child = fork();
    if (!child) {
        at[4 * PAGE + 1] = 'N';
        _exit(pwrite(fd, "far", 3, 6 * PAGE) != 3);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child && status == 0);
    CHECK(!memcmp(at + 4 * PAGE, "ENd", 3) && !memcmp(at + 6 * PAGE, "far", 3) && at[5 * PAGE] == 0);
    /* And so that a system call is the first to look. */
    child = fork();
    if (!child)
        _exit(ftruncate(fd, 8 * PAGE) != 0);
    NEED(waitpid(child, &status, 0) == child && status == 0);
    CHECK(pread(fd, at + 7 * PAGE, 5, PAGE) == 5 && at[7 * PAGE] == 'b');
    /* Shorter, and longer again: zeros. */
    CHECK(ftruncate(fd, PAGE + 5) == 0 && is_bus(at + 2 * PAGE) && at[PAGE + 5] == 0 && at[PAGE + 4] == 'b');
    CHECK(ftruncate(fd, 8 * PAGE) == 0 && at[PAGE + 6] == 0 && at[4 * PAGE] == 0 && at[7 * PAGE] == 0);
    CHECK(munmap(at, 8 * PAGE) == 0);
    /* Nothing there at all, and a hole. */
    CHECK(ftruncate(fd, 0) == 0);
    at = map(fd, PAGE, RW, MAP_SHARED, 0);
    CHECK(is_bus(at) && ftruncate(fd, 100 * PAGE) == 0 && at[0] == 0);
    char *hole = map(fd, PAGE, RW, MAP_SHARED, 50 * PAGE);
    hole[7] = 'h';
    char got[8];
    CHECK(pread(fd, got, 8, 50 * PAGE) == 8 && got[7] == 'h' && got[0] == 0);
    CHECK(munmap(hole, PAGE) == 0 && munmap(at, PAGE) == 0 && close(fd) == 0);
}

static void places(void) {
    int fd = pattern_file("placed", 6 * PAGE);
    char *at = map(fd, 6 * PAGE, RW, MAP_SHARED, 0);
    /* A hole in the middle, something else in it. */
    CHECK(munmap(at + 2 * PAGE, PAGE) == 0 && at[PAGE] == 'b' && at[3 * PAGE] == 'd');
    char *other = mmap(at + 2 * PAGE, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(other == at + 2 * PAGE && other[0] == 0);
    other[0] = 'o';
    CHECK(mmap(at + 3 * PAGE, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at + 3 * PAGE);
    CHECK(at[3 * PAGE] == 0);
    at[3 * PAGE] = 'z';
    char got[2];
    CHECK(pread(fd, got, 1, 3 * PAGE) == 1 && got[0] == 'd');
    CHECK(mmap(at, PAGE, RW, MAP_SHARED | MAP_FIXED, fd, 4 * PAGE) == at && at[0] == 'e');
    at[1] = 'F';
    CHECK(at[4 * PAGE + 1] == 'F' && at[5 * PAGE] == 'f');
    CHECK(mmap(at, PAGE, RW, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) == MAP_FAILED && errno == EEXIST);
    CHECK(munmap(at, 6 * PAGE) == 0);
    /* Grown, moved, shrunk. */
    at = map(fd, 2 * PAGE, RW, MAP_SHARED, PAGE);
    char *moved = mremap(at, 2 * PAGE, 5 * PAGE, MREMAP_MAYMOVE);
    NEED(moved != MAP_FAILED);
    CHECK(moved[0] == 'b' && moved[4 * PAGE] == 'f');
    moved[4 * PAGE] = 'Q';
    CHECK(pread(fd, got, 1, 5 * PAGE) == 1 && got[0] == 'Q');
    char *room = mmap(NULL, 20 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *there = mremap(moved, 5 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room + 3 * PAGE);
    CHECK(there == room + 3 * PAGE && there[0] == 'b' && there[4 * PAGE] == 'Q');
    CHECK(mremap(there, 5 * PAGE, PAGE, 0) == there && there[0] == 'b');
    CHECK(munmap(there, PAGE) == 0 && munmap(room, 20 * PAGE) == 0);
    char *own = map(fd, 2 * PAGE, RW, MAP_PRIVATE, 0);
    own[0] = 'C';
    moved = mremap(own, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && moved[0] == 'C' && moved[PAGE] == 'b' && moved[2 * PAGE] == 'c');
    CHECK(munmap(moved, 4 * PAGE) == 0);
    close(fd);
}

static void rights(void) {
    int fd = pattern_file("rights", 2 * PAGE), reads = open(in("rights"), O_RDONLY),
        writes = open(in("rights"), O_WRONLY);
    CHECK(mmap(NULL, PAGE, RW, MAP_SHARED, reads, 0) == MAP_FAILED && errno == EACCES);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, writes, 0) == MAP_FAILED && errno == EACCES);
    CHECK(mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 100) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, PAGE, PROT_READ, 0, fd, 0) == MAP_FAILED && errno == EINVAL);
    char *at = map(reads, PAGE, PROT_READ, MAP_SHARED, 0), *own = map(reads, PAGE, RW, MAP_PRIVATE, 0);
    FAILS(EACCES, mprotect(at, PAGE, RW));
    own[0] = 'x';
    CHECK(at[0] == 'a');
    char *both = map(fd, 2 * PAGE, PROT_READ, MAP_SHARED, 0);
    CHECK(mprotect(both + PAGE, PAGE, RW) == 0);
    both[PAGE] = 'w';
    char got[1];
    CHECK(pread(fd, got, 1, PAGE) == 1 && got[0] == 'w');
    CHECK(munmap(at, PAGE) == 0 && munmap(own, PAGE) == 0 && munmap(both, 2 * PAGE) == 0);
    /* A program's text. */
    static const unsigned char answer[] = {0xb8, 42, 0, 0, 0, 0xc3};
    CHECK(pwrite(fd, answer, sizeof answer, 0) == sizeof answer);
    int (*text)(void) = (int (*)(void))map(fd, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, 0);
    CHECK(text() == 42);
    CHECK(munmap((void *)text, PAGE) == 0);
    close(fd), close(reads), close(writes);
}

static void lives(void) {
    /* A mapping outlives descriptor and name. */
    int fd = pattern_file("gone", 3 * PAGE);
    char *at = map(fd, 3 * PAGE, RW, MAP_SHARED, 0);
    CHECK(close(fd) == 0 && unlink(in("gone")) == 0);
    for (int file = 0; file < 20; file++) {
        char name[20];
        snprintf(name, sizeof name, "other-%d", file);
        close(pattern_file(name, 3 * PAGE));
    }
    CHECK(at[0] == 'a' && at[PAGE] == 'b' && at[2 * PAGE] == 'c');
    at[0] = 'l';
    /* Children share it, and count in it together. */
    volatile long *count = (volatile long *)(at + PAGE);
    *count = 0;
    for (int child = 0; child < 4; child++)
        if (!fork()) {
            for (int times = 0; times < 10000; times++)
                __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
            _exit(0);
        }
    int status;
    for (int child = 0; child < 4; child++)
        NEED(wait(&status) > 0 && status == 0);
    CHECK(*count == 40000 && at[0] == 'l');
    /* A child that is made past the library has the mapping, or knows that it has not. */
    long made;
    __asm__ volatile("syscall" : "=a"(made) : "a"((long)SYS_fork) : "rcx", "r11", "memory");
    if (!made) {
        at[3] = 'R';
        __asm__ volatile("syscall" : : "a"((long)SYS_exit_group), "D"(0L) : "rcx", "r11", "memory");
    }
    NEED(made > 0 && waitpid(made, &status, 0) == made);
    CHECK(status == 0 ? at[3] == 'R' : WTERMSIG(status) == SIGSEGV && at[3] == 'a');
    /* The parent of a child that lives on may go. */
    int pipes[2];
    NEED(pipe(pipes) == 0);
    pid_t child = fork();
    if (!child) {
        if (!fork()) {
            usleep(100000);
            at[2] = 'C';
            char said = at[0] == 'l' && at[2] == 'C' && *count == 40000 ? 'y' : 'n';
            _exit(write(pipes[1], &said, 1) != 1);
        }
        _exit(0);
    }
    char said = 0;
    NEED(waitpid(child, &status, 0) == child && status == 0);
    CHECK(read(pipes[0], &said, 1) == 1 && said == 'y' && at[2] == 'C');
    CHECK(munmap(at, 3 * PAGE) == 0);
}

static void *reader(void *at) {
    long sum = 0;
    for (int times = 0; times < 200; times++)
        for (int byte = 0; byte < 64 * PAGE; byte += 512)
            sum += ((volatile char *)at)[byte];
    return (void *)sum;
}

static void threads(void) {
    int fd = pattern_file("threads", 64 * PAGE);
    char *at = map(fd, 64 * PAGE, RW, MAP_SHARED, 0);
    pthread_t all[4];
    for (int one = 0; one < 4; one++)
        NEED(pthread_create(&all[one], NULL, reader, at) == 0);
    static char much[8 * PAGE];
    for (int times = 0; times < 300; times++) {
        memset(much, times, sizeof much);
        CHECK(pwrite(fd, much, sizeof much, times % 50 * PAGE) == sizeof much);
        CHECK(at[times % 50 * PAGE + 5] == (char)times);
        char *own = map(fd, PAGE, PROT_READ, MAP_SHARED, times % 64 * PAGE);
        CHECK(munmap(own, PAGE) == 0);
    }
    for (int one = 0; one < 4; one++)
        pthread_join(all[one], NULL);
    CHECK(munmap(at, 64 * PAGE) == 0 && close(fd) == 0);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    struct sigaction bus = {.sa_handler = on_bus};
    sigaction(SIGBUS, &bus, NULL);
    coherent();
    sizes();
    places();
    rights();
    lives();
    threads();
    say("mappings: %d failures\n", failures);
    /* One is left mapped at the end. */
    int fd = pattern_file("left", PAGE);
    map(fd, PAGE, RW, MAP_SHARED, 0)[0] = 'L';
    return failures != 0;
}
