/* Every code of pmkv.h, by its cause; and calls that are wrong in every way that can be told. */
#include "told.h"
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char place[4000], path[4100], other[4100];

static void copy(const char *from, const char *to)
{
    char bytes[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    IS(in >= 0 && out >= 0);
    for (ssize_t got; (got = read(in, bytes, sizeof bytes)) > 0;)
        IS(write(out, bytes, (size_t)got) == got);
    close(in);
    close(out);
}

static void patch(const char *file, off_t at, const void *bytes, size_t size)
{
    int to = open(file, O_WRONLY);
    IS(to >= 0 && pwrite(to, bytes, size, at) == (ssize_t)size);
    close(to);
}

static pmheap_t *fresh(uint64_t size)
{
    struct pmheap_options options;
    memset(&options, 0, sizeof options);
    options.size = size;
    unlink(path);
    pmheap_t *heap = pmheap_create(path, &options);
    IS(heap != NULL);
    return heap;
}

static uint64_t make(pmheap_t *heap, uint64_t size)
{
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    uint64_t object = pmheap_tx_alloc(tx, size);
    IS(object != 0);
    OK(pmheap_tx_commit(tx));
    return object;
}

/* Wrong handles and pointers, in every function. */
static void handles(void)
{
    struct pmheap_stat stat;
    struct pmheap_census census;
    uint64_t one[] = {1};
    char buffer[16] = "";
    int locked;
    pmheap_t *heap = fresh(1 << 20), *closed = heap;
    uint64_t object = make(heap, 64);
    FAILS(PMHEAP_E_NULL, pmheap_stat(heap, NULL));
    FAILS(PMHEAP_E_NULL, pmheap_give_back(heap, NULL));
    FAILS(PMHEAP_E_NULL, pmheap_check(heap, NULL));
    FAILS(PMHEAP_E_NULL, pmheap_read(heap, object, 0, NULL, 1));
    FAILS(PMHEAP_E_NULL, pmheap_root(heap, NULL, 8, 1));
    FAILS(PMHEAP_E_NULL, pmheap_open(NULL, NULL));
    FAILS(PMHEAP_E_NULL, pmheap_create(NULL, NULL));
    FAILS(PMHEAP_E_NULL, pmheap_type_register(NULL, 8, NULL, 0));
    FAILS(PMHEAP_E_NULL, pmheap_type_register("x", 8, NULL, 1));
    FAILS(PMHEAP_E_NULL, pmheap_type_struct(NULL, 1, 8));
    pmheap_tx_t *tx = pmheap_tx_begin(heap), *ended = tx;
    IS(tx != NULL);
    FAILS(PMHEAP_E_NULL, pmheap_tx_lock_all(tx, NULL, 1));
    FAILS(PMHEAP_E_NULL, pmheap_tx_try_lock(tx, object, NULL));
    FAILS(PMHEAP_E_NULL, pmheap_tx_write(tx, object, 0, NULL, 1));
    FAILS(PMHEAP_E_NULL, pmheap_tx_read(tx, object, 0, NULL, 1));
    FAILS(PMHEAP_E_NULL, pmheap_tx_root(tx, NULL, 8, 1));
    OK(pmheap_tx_abort(tx));
    OK(pmheap_close(heap));
    /* NULL, one that is gone, a pointer to something else, and a handle of the other kind. */
    struct {
        enum pmheap_code code;
        void *heap, *tx;
    } rows[] = {{PMHEAP_E_NULL, NULL, NULL},
                {PMHEAP_E_HANDLE, closed, ended},
                {PMHEAP_E_HANDLE, &stat, &stat},
                {PMHEAP_E_HANDLE, ended, closed}};
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        enum pmheap_code code = rows[row].code;
        heap = (pmheap_t *)rows[row].heap;
        tx = (pmheap_tx_t *)rows[row].tx;
        FAILS(code, pmheap_close(heap));
        FAILS(code, pmheap_stat(heap, &stat));
        FAILS(code, pmheap_check(heap, &census));
        FAILS(code, pmheap_read(heap, object, 0, buffer, 8));
        FAILS(code, pmheap_size_of(heap, object));
        FAILS(code, pmheap_root(heap, "x", 8, 1));
        FAILS(code, pmheap_root_object(heap));
        FAILS(code, pmheap_tx_begin(heap));
        FAILS(code, pmheap_tx_nest(tx));
        FAILS(code, pmheap_tx_commit(tx));
        FAILS(code, pmheap_tx_abort(tx));
        FAILS(code, pmheap_tx_lock(tx, object));
        FAILS(code, pmheap_tx_lock_all(tx, one, 1));
        FAILS(code, pmheap_tx_try_lock(tx, object, &locked));
        FAILS(code, pmheap_tx_alloc(tx, 8));
        FAILS(code, pmheap_tx_free(tx, object));
        FAILS(code, pmheap_tx_edit(tx, object, 0, 8));
        FAILS(code, pmheap_tx_write(tx, object, 0, buffer, 8));
        FAILS(code, pmheap_tx_read(tx, object, 0, buffer, 8));
        FAILS(code, pmheap_tx_size_of(tx, object));
        FAILS(code, pmheap_tx_set_root(tx, object));
        FAILS(code, pmheap_tx_root(tx, "x", 8, 1));
    }
}

/* Numbers that mean nothing, and those that are too large. */
static void values(void)
{
    char buffer[64], name[300];
    const uint64_t crossed[] = {8, 12}, late[] = {64};
    struct pmheap_field field = {"a", "usize", 0, 0, 0};
    struct pmheap_options options;
    memset(&options, 0, sizeof options);
    memset(name, 'x', sizeof name);
    name[299] = 0;
    pmheap_t *heap = fresh(1 << 20);
    uint64_t object = make(heap, 64);
    FAILS(PMHEAP_E_RANGE, pmheap_read(heap, object, 0, buffer, 65));
    FAILS(PMHEAP_E_RANGE, pmheap_read(heap, object, 0, buffer, SIZE_MAX));
    FAILS(PMHEAP_E_RANGE, pmheap_read(heap, object, UINT64_MAX, buffer, 2));
    FAILS(PMHEAP_E_NO_OBJECT, pmheap_read(heap, object + 8, 0, buffer, 8));
    FAILS(PMHEAP_E_NO_OBJECT, pmheap_read(heap, UINT64_MAX, 0, buffer, 8));
    FAILS(PMHEAP_E_NO_OBJECT, pmheap_size_of(heap, 0));
    FAILS(PMHEAP_E_NAME, pmheap_root(heap, name, 8, 1));
    FAILS(PMHEAP_E_NAME, pmheap_root(heap, "", 8, 1));
    FAILS(PMHEAP_E_ARGUMENT, pmheap_root(heap, "\xff", 8, 1));
    FAILS(PMHEAP_E_ARGUMENT, pmheap_root(heap, "x", 8, 0));
    FAILS(PMHEAP_E_SIZE, pmheap_root(heap, "x", 0, 1));
    FAILS(PMHEAP_E_SIZE, pmheap_root(heap, "x", UINT64_MAX, 1));
    IS(pmheap_root(heap, "x", 8, 1) != 0);
    FAILS(PMHEAP_E_TYPE, pmheap_root(heap, "x", 8, 2));
    FAILS(PMHEAP_E_CLASS, pmheap_root(heap, "x", 17, 1));
    FAILS(PMHEAP_E_ARGUMENT, pmheap_type_struct(&field, 1, 8));
    field.type = NULL;
    FAILS(PMHEAP_E_ARGUMENT, pmheap_type_struct(&field, 1, 8));
    field.type = "u64";
    FAILS(PMHEAP_E_ARGUMENT, pmheap_type_struct(&field, 1, 16));
    field.count = UINT64_MAX;
    FAILS(PMHEAP_E_ARGUMENT, pmheap_type_struct(&field, 1, 8));
    FAILS(PMHEAP_E_ARGUMENT, pmheap_type_struct(&field, SIZE_MAX, 8));
    FAILS(PMHEAP_E_ARGUMENT, pmheap_type_register("x", 64, crossed, 2));
    FAILS(PMHEAP_E_ARGUMENT, pmheap_type_register("x", 64, late, 1));
    FAILS(PMHEAP_E_ARGUMENT, pmheap_type_register("", 64, NULL, 0));

    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    FAILS(PMHEAP_E_NESTED, pmheap_tx_begin(heap));
    FAILS(PMHEAP_E_NESTED, pmheap_root(heap, "missing", 8, 1));
    FAILS(PMHEAP_E_IN_USE, pmheap_close(heap));
    FAILS(PMHEAP_E_SIZE, pmheap_tx_alloc(tx, 0));
    FAILS(PMHEAP_E_SIZE, pmheap_tx_alloc(tx, UINT64_MAX));
    FAILS(PMHEAP_E_NO_OBJECT, pmheap_tx_free(tx, object + 1));
    FAILS(PMHEAP_E_NO_OBJECT, pmheap_tx_set_root(tx, 77));
    FAILS(PMHEAP_E_NO_OBJECT, pmheap_tx_edit(tx, 77, 0, 8));
    FAILS(PMHEAP_E_ARGUMENT, pmheap_tx_edit(tx, object, 0, 0));
    FAILS(PMHEAP_E_RANGE, pmheap_tx_edit(tx, object, 0, UINT64_MAX));
    FAILS(PMHEAP_E_RANGE, pmheap_tx_edit(tx, object, UINT64_MAX, UINT64_MAX));
    FAILS(PMHEAP_E_RANGE, pmheap_tx_edit(tx, object, 64, 1));
    FAILS(PMHEAP_E_RANGE, pmheap_tx_read(tx, object, 1, buffer, SIZE_MAX));
    FAILS(PMHEAP_E_RANGE, pmheap_tx_write(tx, object, 1, buffer, SIZE_MAX));
    FAILS(PMHEAP_E_ARGUMENT, pmheap_tx_lock_all(tx, &object, SIZE_MAX));
    IS(pmheap_tx_edit(tx, object, 8, 8) != NULL);
    FAILS(PMHEAP_E_OVERLAP, pmheap_tx_edit(tx, object, 0, 16));
    OK(pmheap_tx_abort(tx));
    OK(pmheap_close(heap));

    options.reserved[3] = 1;
    FAILS(PMHEAP_E_ARGUMENT, pmheap_open(path, &options));
    options.reserved[3] = 0;
    options.is_private = 1;
    FAILS(PMHEAP_E_ARGUMENT, pmheap_open(path, &options));
    FAILS(PMHEAP_E_ARGUMENT, pmheap_create(path, &options));
    options.size = UINT64_MAX;
    FAILS(PMHEAP_E_SPACE, pmheap_create(NULL, &options));
    options.size = 1;
    FAILS(PMHEAP_E_TOO_SMALL, pmheap_create(NULL, &options));
    options.size = 1 << 20;
    options.max = options.lanes = options.processes = UINT32_MAX;
    FAILS(PMHEAP_E_TOO_SMALL, pmheap_create(NULL, &options));
    options.lanes = options.processes = 2;
    options.max = UINT64_MAX;
    heap = pmheap_create(NULL, &options);
    IS(heap != NULL);
    OK(pmheap_close(heap));
    options.max = 0;
    heap = pmheap_create(NULL, &options);
    tx = pmheap_tx_begin(heap);
    IS(heap != NULL && tx != NULL);
    while (pmheap_tx_alloc(tx, 60000) != 0)
        ;
    FAILS(PMHEAP_E_FULL, pmheap_tx_alloc(tx, 60000));
    OK(pmheap_tx_abort(tx));
    OK(pmheap_close(heap));
    enum { HEAPS = 256 };
    pmheap_t *heaps[HEAPS];
    for (int at = 0; at < HEAPS; at++)
        IS((heaps[at] = pmheap_create(NULL, &options)) != NULL);
    FAILS(PMHEAP_E_HEAPS, pmheap_create(NULL, &options));
    for (int at = 0; at < HEAPS; at++)
        OK(pmheap_close(heaps[at]));
    FAILS(PMHEAP_E_HANDLE, pmheap_close(heaps[7]));
}

static uint32_t crc32c(const unsigned char *bytes, size_t size)
{
    uint32_t crc = ~0u;
    for (size_t at = 0; at < size; at++) {
        crc ^= bytes[at];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* Files that are no heaps, or none of this build. */
static void files(void)
{
    struct pmheap_options options;
    memset(&options, 0, sizeof options);
    pmheap_t *heap = fresh(1 << 20);
    uint64_t object = make(heap, 64);
    FAILS(PMHEAP_E_EXISTS, pmheap_create(path, NULL));
    /* A copy of a heap in use, in the same boot. */
    copy(path, other);
    FAILS(PMHEAP_E_APART, pmheap_open(other, NULL));
    options.adopt = 1;
    pmheap_t *adopted = pmheap_open(other, &options);
    IS(adopted != NULL && pmheap_size_of(adopted, object) == 64);
    OK(pmheap_close(adopted));
    OK(pmheap_close(heap));
    FAILS(PMHEAP_E_OPEN, pmheap_open("/nowhere/at/all", NULL));
    FAILS(PMHEAP_E_OPEN, pmheap_open(place, NULL));

    memset(&options, 0, sizeof options);
    options.read_only = 1;
    IS(chmod(path, 0400) == 0);
    pmheap_t *read_only = pmheap_open(path, &options);
    IS(read_only != NULL && pmheap_size_of(read_only, object) == 64);
    FAILS(PMHEAP_E_READ_ONLY, pmheap_tx_begin(read_only));
    uint64_t given = 1;
    FAILS(PMHEAP_E_READ_ONLY, pmheap_give_back(read_only, &given));
    FAILS(PMHEAP_E_READ_ONLY, pmheap_root(read_only, "missing", 8, 1));
    OK(pmheap_close(read_only));
    IS(chmod(path, 0600) == 0);
    FAILS(PMHEAP_E_READ_ONLY, pmheap_create("/dev/shm/none", &options));
    /* Its only user ends without closing it. */
    pid_t child = fork();
    if (child == 0)
        _exit(pmheap_open(path, NULL) == NULL);
    int status = -1;
    IS(waitpid(child, &status, 0) == child && status == 0);
    FAILS(PMHEAP_E_RECOVERY, pmheap_open(path, &options));
    IS((heap = pmheap_open(path, NULL)) != NULL);
    OK(pmheap_close(heap));
    options.is_private = 1;
    FAILS(PMHEAP_E_READ_ONLY, pmheap_create(NULL, &options));

    unsigned char header[128];
    int file = open(path, O_RDONLY);
    IS(pread(file, header, sizeof header, 0) == sizeof header);
    close(file);
    copy(path, other);
    header[8] = 3;
    uint32_t crc = crc32c(header, 124);
    memcpy(header + 124, &crc, 4);
    patch(other, 0, header, 128);
    patch(other, 4096, header, 128);
    FAILS(PMHEAP_E_VERSION, pmheap_open(other, NULL));
    header[8] = 2;
    patch(other, 0, header, 128);
    patch(other, 4096, header, 128);
    FAILS(PMHEAP_E_DAMAGED, pmheap_open(other, NULL));
    patch(other, 0, "something else", 14);
    patch(other, 4096, "something else", 14);
    FAILS(PMHEAP_E_FOREIGN, pmheap_open(other, NULL));
    IS(truncate(other, 100) == 0);
    FAILS(PMHEAP_E_TOO_SMALL, pmheap_open(other, NULL));
    unlink(other);
    options.is_private = options.read_only = 0;
    options.size = 1000;
    FAILS(PMHEAP_E_TOO_SMALL, pmheap_create(other, &options));
    IS(access(other, F_OK) != 0);
    options.size = (uint64_t)1 << 44;
    FAILS(PMHEAP_E_SPACE, pmheap_create(other, &options));
    IS(access(other, F_OK) != 0);

    /* A file that may not grow, which is no lack of space. */
    char name[40];
    file = memfd_create("heap", MFD_ALLOW_SEALING);
    IS(file >= 0);
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    copy(path, name);
    IS((heap = pmheap_open(name, NULL)) != NULL);
    IS(fcntl(file, F_ADD_SEALS, F_SEAL_GROW) == 0);
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    FAILS(PMHEAP_E_MEDIUM, pmheap_tx_alloc(tx, 1 << 20));
    IS(pmheap_tx_alloc(tx, 64) != 0);
    OK(pmheap_tx_commit(tx));
    OK(pmheap_close(heap));
    close(file);

    /* A limit of the process. */
    struct rlimit was, limit = {1 << 20, RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    IS(getrlimit(RLIMIT_FSIZE, &was) == 0);
    limit.rlim_max = was.rlim_max;
    IS(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    FAILS(PMHEAP_E_SPACE, pmheap_create(other, NULL));
    IS(setrlimit(RLIMIT_FSIZE, &was) == 0);
    unlink(other);
}

/* A process that attaches and never ends is waited for as long as the options say. */
static void an_entrance_that_is_held(void)
{
    int file = open(path, O_RDWR);
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = (off_t)1 << 62;
    lock.l_len = 1;
    IS(fcntl(file, F_OFD_SETLK, &lock) == 0);
    struct pmheap_options options;
    memset(&options, 0, sizeof options);
    options.wait_ms = 200;
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    FAILS(PMHEAP_E_BUSY, pmheap_open(path, &options));
    clock_gettime(CLOCK_MONOTONIC, &ended);
    long waited = (ended.tv_sec - began.tv_sec) * 1000;
    waited += (ended.tv_nsec - began.tv_nsec) / 1000000;
    IS(waited >= 200 && waited < 30000);
    close(file);
    pmheap_t *heap = pmheap_open(path, &options);
    IS(heap != NULL);
    OK(pmheap_close(heap));
}

/* Other processes. */
static void processes(void)
{
    pmheap_t *heap = fresh(1 << 20);
    uint64_t object = make(heap, 64);
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    IS(tx != NULL);
    uint64_t made = pmheap_tx_alloc(tx, 8);
    IS(made != 0);
    pid_t child = fork();
    if (child == 0) {
        struct pmheap_stat stat;
        char bytes[8];
        FAILS(PMHEAP_E_FORKED, pmheap_read(heap, object, 0, bytes, 8));
        FAILS(PMHEAP_E_FORKED, pmheap_stat(heap, &stat));
        uint64_t given;
        FAILS(PMHEAP_E_FORKED, pmheap_give_back(heap, &given));
        struct pmheap_census census;
        int got = 0;
        FAILS(PMHEAP_E_FORKED, pmheap_size_of(heap, object));
        FAILS(PMHEAP_E_FORKED, pmheap_check(heap, &census));
        FAILS(PMHEAP_E_FORKED, pmheap_root(heap, "missing", 8, 1));
        FAILS(PMHEAP_E_FORKED, pmheap_root_object(heap));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_begin(heap));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_alloc(tx, 8));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_size_of(tx, object));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_size_of(tx, made));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_read(tx, object, 0, bytes, 8));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_edit(tx, object, 0, 8));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_write(tx, object, 0, bytes, 8));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_free(tx, made));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_free(tx, object));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_lock(tx, object));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_lock_all(tx, &object, 1));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_try_lock(tx, object, &got));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_set_root(tx, object));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_set_root(tx, made));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_root(tx, "missing", 8, 1));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_nest(tx));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_commit(tx));
        FAILS(PMHEAP_E_FORKED, pmheap_close(heap));
        FAILS(PMHEAP_E_HANDLE, pmheap_close(heap));
        heap = pmheap_open(path, NULL);
        IS(heap != NULL && pmheap_size_of(heap, object) == 64);
        OK(pmheap_close(heap));
        _exit(0);
    }
    int status = -1;
    IS(waitpid(child, &status, 0) == child && status == 0);
    if ((child = fork()) == 0) {
        FAILS(PMHEAP_E_FORKED, pmheap_tx_abort(tx));
        FAILS(PMHEAP_E_HANDLE, pmheap_tx_abort(tx));
        _exit(0);
    }
    IS(waitpid(child, &status, 0) == child && status == 0);
    OK(pmheap_tx_nest(tx));
    if ((child = fork()) == 0) {
        FAILS(PMHEAP_E_FORKED, pmheap_tx_commit(tx));
        FAILS(PMHEAP_E_FORKED, pmheap_tx_abort(tx));
        _exit(0);
    }
    IS(waitpid(child, &status, 0) == child && status == 0);
    OK(pmheap_tx_commit(tx));
    IS(pmheap_tx_alloc(tx, 8) != 0);
    OK(pmheap_tx_commit(tx));
    OK(pmheap_close(heap));

    struct pmheap_options options;
    memset(&options, 0, sizeof options);
    options.size = 1 << 20;
    options.processes = 2;
    unlink(path);
    IS((heap = pmheap_create(path, &options)) != NULL);
    int held[2], full[2], count = 0;
    char word;
    IS(pipe(held) == 0 && pipe(full) == 0);
    /* Each child has it until all have tried. */
    for (; count < 20; count++) {
        if (fork() == 0) {
            pmheap_t *mine = pmheap_open(path, NULL);
            if (mine == NULL)
                FAILS(PMHEAP_E_PROCESSES, pmheap_open(path, NULL));
            word = mine == NULL;
            IS(write(full[1], &word, 1) == 1);
            close(held[1]);
            while (read(held[0], &word, 1) > 0)
                ;
            _exit(0);
        }
        IS(read(full[0], &word, 1) == 1);
        if (word)
            break;
    }
    IS(count < 20);
    close(held[1]);
    while (wait(&status) > 0)
        IS(status == 0);
    OK(pmheap_close(heap));

    /* A process that wants the heap for itself: its lock is what counts. */
    int file = open(path, O_RDWR);
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = ((off_t)1 << 62) + 1;
    lock.l_len = 1;
    IS(fcntl(file, F_OFD_SETLK, &lock) == 0);
    FAILS(PMHEAP_E_BUSY, pmheap_open(path, NULL));
    close(file);
    an_entrance_that_is_held();
}

struct beside {
    pmheap_t *heap;
    pmheap_tx_t *tx;
    uint64_t first, second;
    pthread_barrier_t both;
};

static void *of_another_thread(void *argument)
{
    struct beside *with = (struct beside *)argument;
    FAILS(PMHEAP_E_THREAD, pmheap_tx_alloc(with->tx, 8));
    FAILS(PMHEAP_E_THREAD, pmheap_tx_commit(with->tx));
    FAILS(PMHEAP_E_THREAD, pmheap_tx_abort(with->tx));
    /* A thread that ends undoes what it was doing, and lets its locks go. */
    pmheap_tx_t *tx = pmheap_tx_begin(with->heap);
    OK(pmheap_tx_lock(tx, with->second));
    uint64_t *words = (uint64_t *)pmheap_tx_edit(tx, with->second, 0, 8);
    IS(words != NULL);
    *words = 9;
    return NULL;
}

static void *the_other_way_round(void *argument)
{
    struct beside *with = (struct beside *)argument;
    pmheap_tx_t *tx = pmheap_tx_begin(with->heap);
    OK(pmheap_tx_lock(tx, with->second));
    pthread_barrier_wait(&with->both);
    enum pmheap_code code = pmheap_tx_lock(tx, with->first);
    OK(pmheap_tx_abort(tx));
    return (void *)(uintptr_t)code;
}

static void *look(void *argument)
{
    struct beside *with = (struct beside *)argument;
    int locked;
    pmheap_tx_t *tx = pmheap_tx_begin(with->heap);
    OK(pmheap_tx_try_lock(tx, with->second, &locked));
    OK(pmheap_tx_abort(tx));
    return locked ? NULL : argument;
}

/* Whether the second object's lock is not to be had by another thread. */
static int is_locked(struct beside *with)
{
    pthread_t thread;
    void *answer;
    IS(pthread_create(&thread, NULL, look, with) == 0 && pthread_join(thread, &answer) == 0);
    return answer != NULL;
}

static void threads(void)
{
    struct beside with;
    pthread_t thread;
    void *answer;
    uint64_t word = 1;
    with.heap = fresh(1 << 20);
    with.first = make(with.heap, 64);
    with.second = make(with.heap, 64);
    with.tx = pmheap_tx_begin(with.heap);
    IS(pthread_create(&thread, NULL, of_another_thread, &with) == 0);
    IS(pthread_join(thread, NULL) == 0);
    OK(pmheap_tx_lock(with.tx, with.second));
    OK(pmheap_tx_commit(with.tx));
    OK(pmheap_read(with.heap, with.second, 0, &word, 8));
    IS(word == 0);
    /* A circle of two; objects may have one lock, and then there is none. */
    for (int circles = 0, tries = 0; circles == 0; tries++) {
        IS(tries < 20);
        with.second = make(with.heap, 64);
        pthread_barrier_init(&with.both, NULL, 2);
        pmheap_tx_t *tx = pmheap_tx_begin(with.heap);
        OK(pmheap_tx_lock(tx, with.first));
        if (is_locked(&with)) {
            OK(pmheap_tx_abort(tx));
            continue;
        }
        IS(pthread_create(&thread, NULL, the_other_way_round, &with) == 0);
        pthread_barrier_wait(&with.both);
        enum pmheap_code mine = pmheap_tx_lock(tx, with.second);
        OK(pmheap_tx_abort(tx));
        IS(pthread_join(thread, &answer) == 0);
        enum pmheap_code theirs = (enum pmheap_code)(uintptr_t)answer;
        circles = (mine == PMHEAP_E_DEADLOCK) + (theirs == PMHEAP_E_DEADLOCK);
        IS(circles == 1 && (mine == PMHEAP_OK || theirs == PMHEAP_OK));
    }
    OK(pmheap_close(with.heap));
}

/* A file that loses its pages under the heap: an error, then and later. */
static void lost(void)
{
    char byte;
    pmheap_t *heap = fresh(1 << 20);
    uint64_t object = make(heap, 100000);
    IS(truncate(path, 4096) == 0);
    FAILS(PMHEAP_E_LOST, pmheap_read(heap, object, 5000, &byte, 1));
    FAILS(PMHEAP_E_LOST, pmheap_tx_begin(heap));
    FAILS(PMHEAP_E_LOST, pmheap_close(heap));
    FAILS(PMHEAP_E_HANDLE, pmheap_close(heap));

    /* In the middle of a commit: nobody knows whether it has happened. */
    heap = fresh(1 << 20);
    object = make(heap, 100000);
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    IS(pmheap_tx_edit(tx, object, 5000, 1) != NULL && pmheap_tx_alloc(tx, 64) != 0);
    IS(truncate(path, 4096) == 0);
    FAILS(PMHEAP_E_LOST, pmheap_tx_commit(tx));
    FAILS(PMHEAP_E_HANDLE, pmheap_tx_commit(tx));
    IS(pmheap_tx_begin(heap) == NULL);
    IS(pmheap_last_code() == PMHEAP_E_LOST || pmheap_last_code() == PMHEAP_E_BROKEN);
    IS(pmheap_close(heap) == pmheap_last_code() && pmheap_last_code() != PMHEAP_OK);
}

int main(int argc, char **argv)
{
    IS(argc == 2);
    snprintf(place, sizeof place, "%s.files", argv[1]);
    IS(mkdir(place, 0700) == 0);
    snprintf(path, sizeof path, "%s/heap", place);
    snprintf(other, sizeof other, "%s/other", place);
    handles();
    values();
    files();
    processes();
    threads();
    lost();
    unlink(path);
    IS(rmdir(place) == 0);
    return 0;
}
