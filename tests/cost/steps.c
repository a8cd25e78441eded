/*
 * Instructions of single calls, counted by single steps: `tests/compare-cost.sh` compares two builds by them.
 *
 *   steps prepare LIBRARY POOL        makes the files that the rows need, by the library
 *   steps library LIBRARY POOL        counts each row: calls of the library
 *   steps system DIR                  counts each row: system calls on files below DIR
 *   steps crash LIBRARY POOL          changes the pool and is killed before it is closed
 *   steps start PROGRAM               page faults of a start of the program
 *
 * A count is what the program executes, not what the kernel does for it. A repeated string instruction counts once,
 * however many bytes it moves. Offsets and names are the same in each run. Printed is a line a row: its name and the
 * mean of the middle half of its calls, so that one call that meets a clock's tick or a full block does not show.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pmfs.h"

enum {
    BLOCK = 4096,
    FILE_BYTES = 8 << 20,
    NAMES = 2000,
    /* Calls of a row that run at full speed first, and those that are stepped through. */
    WARM = 64,
    COUNTED = 8,
    STARTS = 9,
};

enum row {
    NOTHING,
    READ_4K,
    READ_64,
    READ_HOT,
    WRITE_4K,
    WRITE_64,
    APPEND_64,
    APPEND_4K,
    FSTAT,
    STAT,
    OPEN_CLOSE,
    CREATE_CLOSE,
    RENAME,
    UNLINK,
    ROWS,
};

static const char *const NAME[ROWS] = {
    "nothing",        "pread 4 KiB, random", "pread 64 B, random", "pread 4 KiB, hot", "pwrite 4 KiB, random",
    "pwrite 64 B, random", "append 64 B",    "append 4 KiB",       "fstat",            "stat",
    "open + close",   "create + close",      "rename",             "unlink",
};

static void fail(const char *what) {
    fprintf(stderr, "steps: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* The file system, by either way in. */
struct way {
    int (*open)(const char *path, int flags, mode_t mode);
    int (*close)(int file);
    ssize_t (*pread)(int file, void *into, size_t size, off_t at);
    ssize_t (*pwrite)(int file, const void *from, size_t size, off_t at);
    ssize_t (*write)(int file, const void *from, size_t size);
    int (*fstat)(int file, struct stat *into);
    int (*stat)(const char *path, struct stat *into);
    int (*mkdir)(const char *path, mode_t mode);
    int (*rename)(const char *from, const char *to);
    int (*unlink)(const char *path);
    int (*ftruncate)(int file, off_t size);
};

static int system_open(const char *path, int flags, mode_t mode) { return open(path, flags, mode); }

static const struct way BY_SYSTEM = {
    system_open, close, pread, pwrite, write, fstat, stat, mkdir, rename, unlink, ftruncate,
};

static pmfs_t *pool;
static struct {
    __typeof__(&pmfs_open_pool) open_pool;
    __typeof__(&pmfs_close_pool) close_pool;
    __typeof__(&pmfs_open) open;
    __typeof__(&pmfs_close) close;
    __typeof__(&pmfs_pread) pread;
    __typeof__(&pmfs_pwrite) pwrite;
    __typeof__(&pmfs_write) write;
    __typeof__(&pmfs_fstat) fstat;
    __typeof__(&pmfs_stat) stat;
    __typeof__(&pmfs_mkdir) mkdir;
    __typeof__(&pmfs_rename) rename;
    __typeof__(&pmfs_unlink) unlink;
    __typeof__(&pmfs_ftruncate) ftruncate;
} library;

static int library_open(const char *path, int flags, mode_t mode) { return library.open(pool, path, flags, mode); }
static int library_close(int file) { return library.close(pool, file); }
static ssize_t library_pread(int file, void *into, size_t size, off_t at) {
    return library.pread(pool, file, into, size, at);
}
static ssize_t library_pwrite(int file, const void *from, size_t size, off_t at) {
    return library.pwrite(pool, file, from, size, at);
}
static ssize_t library_write(int file, const void *from, size_t size) { return library.write(pool, file, from, size); }
static int library_fstat(int file, struct stat *into) { return library.fstat(pool, file, into); }
static int library_stat(const char *path, struct stat *into) { return library.stat(pool, path, into); }
static int library_mkdir(const char *path, mode_t mode) { return library.mkdir(pool, path, mode); }
static int library_rename(const char *from, const char *to) { return library.rename(pool, from, to, 0); }
static int library_unlink(const char *path) { return library.unlink(pool, path); }
static int library_ftruncate(int file, off_t size) { return library.ftruncate(pool, file, size); }

static const struct way BY_LIBRARY = {
    library_open, library_close, library_pread, library_pwrite, library_write,     library_fstat,
    library_stat, library_mkdir, library_rename, library_unlink, library_ftruncate,
};

static void open_library(const char *path, const char *file) {
    void *so = dlopen(path, RTLD_NOW);
    if (!so) {
        fprintf(stderr, "steps: %s\n", dlerror());
        exit(1);
    }
    static const struct {
        const char *name;
        void *into;
    } functions[] = {
        {"pmfs_open_pool", &library.open_pool}, {"pmfs_close_pool", &library.close_pool},
        {"pmfs_open", &library.open},           {"pmfs_close", &library.close},
        {"pmfs_pread", &library.pread},         {"pmfs_pwrite", &library.pwrite},
        {"pmfs_write", &library.write},         {"pmfs_fstat", &library.fstat},
        {"pmfs_stat", &library.stat},           {"pmfs_mkdir", &library.mkdir},
        {"pmfs_rename", &library.rename},       {"pmfs_unlink", &library.unlink},
        {"pmfs_ftruncate", &library.ftruncate},
    };
    for (size_t at = 0; at < sizeof functions / sizeof *functions; at++) {
        void *function = dlsym(so, functions[at].name);
        if (!function) fail(functions[at].name);
        memcpy(functions[at].into, &function, sizeof function);
    }
    pool = library.open_pool(file, 0);
    if (!pool) fail(file);
}

/* splitmix64: the same numbers each run. */
static uint64_t below(uint64_t bound) {
    static uint64_t state = 1;
    state += 0x9e3779b97f4a7c15;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % bound;
}

static char buffer[BLOCK];

static void prepare(const struct way *fs) {
    int file = fs->open("/file", O_CREAT | O_RDWR, 0644);
    if (file < 0) fail("/file");
    /* By single blocks, as random writes leave a file. */
    for (off_t at = 0; at < FILE_BYTES; at += BLOCK) {
        memset(buffer, 'a' + at / BLOCK % 26, BLOCK);
        if (fs->pwrite(file, buffer, BLOCK, at) != BLOCK) fail("pwrite");
    }
    fs->close(file);
    file = fs->open("/log", O_CREAT | O_RDWR, 0644);
    if (file < 0 || fs->close(file) != 0) fail("/log");
    if (fs->mkdir("/dir", 0755) != 0) fail("/dir");
    for (int n = 0; n < NAMES; n++) {
        char path[64];
        snprintf(path, sizeof path, "/dir/file-%08d", n);
        file = fs->open(path, O_CREAT | O_RDWR, 0644);
        if (file < 0 || fs->close(file) != 0) fail(path);
    }
}

/* From here on the tracer steps, until `end_of_call` is reached. */
extern void begin_call(void (*end)(void));
extern void end_of_call(void);
__asm__(".text\n"
        ".globl begin_call\nbegin_call:\n\tint3\n\tret\n"
        ".globl end_of_call\nend_of_call:\n\tret\n");

/* What a call needs, made before it. */
struct inputs {
    int file, log;
    off_t at;
    char path[256], other[256];
};

static long call(const struct way *fs, enum row row, const struct inputs *in) {
    struct stat found;
    int file;
    switch (row) {
    case READ_4K:
    case READ_HOT: return fs->pread(in->file, buffer, BLOCK, in->at) - BLOCK;
    case READ_64: return fs->pread(in->file, buffer, 64, in->at) - 64;
    case WRITE_4K: return fs->pwrite(in->file, buffer, BLOCK, in->at) - BLOCK;
    case WRITE_64: return fs->pwrite(in->file, buffer, 64, in->at) - 64;
    case APPEND_64: return fs->write(in->log, buffer, 64) - 64;
    case APPEND_4K: return fs->write(in->log, buffer, BLOCK) - BLOCK;
    case FSTAT: return fs->fstat(in->log, &found);
    case STAT: return fs->stat(in->path, &found);
    case OPEN_CLOSE:
        file = fs->open(in->path, O_RDWR, 0);
        return file < 0 ? -1 : fs->close(file);
    case CREATE_CLOSE:
        file = fs->open(in->path, O_CREAT | O_EXCL | O_RDWR, 0644);
        return file < 0 ? -1 : fs->close(file);
    case RENAME: return fs->rename(in->path, in->other);
    case UNLINK: return fs->unlink(in->path);
    default: return 0;
    }
}

static void inputs_of(struct inputs *in, enum row row, const char *root, int n) {
    switch (row) {
    case READ_4K:
    case WRITE_4K: in->at = below(FILE_BYTES / BLOCK) * BLOCK; break;
    case READ_64:
    case WRITE_64: in->at = below(FILE_BYTES / 64) * 64; break;
    case READ_HOT: in->at = BLOCK; break;
    case STAT:
    case OPEN_CLOSE: snprintf(in->path, sizeof in->path, "%s/dir/file-%08d", root, (int)below(NAMES)); break;
    case CREATE_CLOSE: snprintf(in->path, sizeof in->path, "%s/dir/new-%08d", root, n); break;
    case RENAME:
        snprintf(in->path, sizeof in->path, "%s/dir/new-%08d", root, n);
        snprintf(in->other, sizeof in->other, "%s/dir/old-%08d", root, n);
        break;
    case UNLINK: snprintf(in->path, sizeof in->path, "%s/dir/old-%08d", root, n); break;
    default: break;
    }
}

static void rows(const struct way *fs, const char *root) {
    struct inputs in = {0};
    char path[256];
    snprintf(path, sizeof path, "%s/file", root);
    in.file = fs->open(path, O_RDWR, 0);
    snprintf(path, sizeof path, "%s/log", root);
    in.log = fs->open(path, O_RDWR | O_APPEND, 0);
    if (in.file < 0 || in.log < 0) fail(path);
    for (enum row row = 0; row < ROWS; row++) {
        if ((row == APPEND_64 || row == APPEND_4K) && fs->ftruncate(in.log, 0) != 0) fail("ftruncate");
        for (int n = 0; n < WARM + COUNTED; n++) {
            inputs_of(&in, row, root, n);
            if (n >= WARM) begin_call(end_of_call);
            long result = call(fs, row, &in);
            if (n >= WARM) end_of_call();
            if (result != 0) fail(NAME[row]);
        }
    }
    fs->close(in.file);
    fs->close(in.log);
}

static int ascending(const void *left, const void *right) {
    long a = *(const long *)left, b = *(const long *)right;
    return (a > b) - (a < b);
}

static double middle(long *steps) {
    qsort(steps, COUNTED, sizeof *steps, ascending);
    long sum = 0;
    for (int n = COUNTED / 4; n < COUNTED - COUNTED / 4; n++) sum += steps[n];
    return (double)sum / (COUNTED - 2 * (COUNTED / 4));
}

/* Steps of the stopped child up to `end`. */
static long steps_to(pid_t child, uint64_t end) {
    uint64_t before = 0;
    for (long steps = 0;;) {
        int status, signal = 0;
        errno = 0;
        uint64_t at = ptrace(PTRACE_PEEKUSER, child, offsetof(struct user, regs.rip), 0);
        if (errno != 0) fail("PTRACE_PEEKUSER");
        if (at == end) return steps;
        /* At the same place again: a string instruction that goes on. */
        steps += at != before;
        before = at;
        do {
            if (ptrace(PTRACE_SINGLESTEP, child, 0, signal) != 0) fail("PTRACE_SINGLESTEP");
            if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) {
                errno = ECHILD;
                fail("the program ended within a call");
            }
            signal = WSTOPSIG(status);
        } while (signal != SIGTRAP);
    }
}

static int trace(pid_t child) {
    static long steps[ROWS][COUNTED];
    int calls = 0, status, signal = 0;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) fail("the program did not start");
    for (;;) {
        if (ptrace(PTRACE_CONT, child, 0, signal) != 0 || waitpid(child, &status, 0) != child) fail("PTRACE_CONT");
        if (!WIFSTOPPED(status)) break;
        signal = WSTOPSIG(status);
        if (signal != SIGTRAP) continue;
        signal = 0;
        struct user_regs_struct regs;
        if (ptrace(PTRACE_GETREGS, child, 0, &regs) != 0) fail("PTRACE_GETREGS");
        if (calls == ROWS * COUNTED) fail("more calls than known");
        steps[calls / COUNTED][calls % COUNTED] = steps_to(child, regs.rdi);
        calls++;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || calls != ROWS * COUNTED) {
        fprintf(stderr, "steps: the program ended after %d calls, with status %#x\n", calls, status);
        return 1;
    }
    double nothing = middle(steps[NOTHING]);
    for (enum row row = NOTHING + 1; row < ROWS; row++) printf("%s\t%.2f\n", NAME[row], middle(steps[row]) - nothing);
    return 0;
}

/* The least of some: what else is in memory at the time adds to single ones. */
static int start(char *program) {
    extern char **environ;
    long faults[STARTS];
    for (int n = 0; n < STARTS; n++) {
        pid_t child;
        int status;
        struct rusage used;
        char *words[] = {program, NULL};
        if (posix_spawn(&child, program, NULL, NULL, words, environ) != 0) fail(program);
        if (wait4(child, &status, 0, &used) != child || status != 0) fail(program);
        faults[n] = used.ru_minflt;
    }
    qsort(faults, STARTS, sizeof *faults, ascending);
    printf("page faults\t%ld\n", faults[0]);
    return 0;
}

/* Every kind of change, then a death in the midst of use. */
static void crash(void) {
    struct inputs in = {.file = library_open("/file", O_RDWR, 0), .log = library_open("/log", O_RDWR | O_APPEND, 0)};
    memset(buffer, 'z', BLOCK);
    for (enum row row = NOTHING; row < ROWS; row++) {
        /* The last row leaves some names. */
        for (int n = 0; n < (row == UNLINK ? 10 : 100); n++) {
            inputs_of(&in, row, "", n);
            if (call(&BY_LIBRARY, row, &in) != 0) fail(NAME[row]);
        }
    }
    kill(getpid(), SIGKILL);
}

/* Runs this program once more, stepped through. */
static int traced(char **words) {
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (child > 0) return trace(child);
    char name[32];
    snprintf(name, sizeof name, "traced-%s", words[1]);
    words[1] = name;
    personality(ADDR_NO_RANDOMIZE);
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    execv("/proc/self/exe", words);
    _exit(127);
}

int main(int count, char **words) {
    const char *what = count == 3 || count == 4 ? words[1] : "";
    if (count == 3 && strcmp(what, "start") == 0) return start(words[2]);
    if (strcmp(what, count == 4 ? "library" : "system") == 0) return traced(words);
    if (count == 3 && strcmp(what, "traced-system") == 0) {
        rows(&BY_SYSTEM, words[2]);
        return 0;
    }
    if (count != 4 || !(strstr("traced-library prepare crash", what))) {
        fprintf(stderr, "usage: steps library|prepare|crash LIBRARY POOL, or steps system DIR, or steps start PROGRAM\n");
        return 2;
    }
    open_library(words[2], words[3]);
    if (strcmp(what, "traced-library") == 0)
        rows(&BY_LIBRARY, "");
    else if (strcmp(what, "prepare") == 0)
        prepare(&BY_LIBRARY);
    else
        crash();
    return library.close_pool(pool) != 0;
}
