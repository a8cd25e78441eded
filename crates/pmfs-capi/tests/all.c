/* Calls every function of pmfs.h, most of them once in a way that works and once in one
 * that does not. */
#include <assert.h>
#include <errno.h>
#include <pmfs.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#undef NDEBUG

#define OK(call)                                                                          \
    do {                                                                                  \
        if ((long)(call) < 0) {                                                           \
            fprintf(stderr, "line %d: %s: %s (%s)\n", __LINE__, #call, strerror(errno),    \
                    pmfs_error());                                                        \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)
#define FAILS(number, call)                                                               \
    do {                                                                                  \
        errno = 0;                                                                        \
        long answer = (long)(call);                                                       \
        if (answer != -1 || errno != (number) || pmfs_error()[0] == 0) {                  \
            fprintf(stderr, "line %d: %s gave %ld, %s (%s)\n", __LINE__, #call, answer,    \
                    strerror(errno), pmfs_error());                                       \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)
#define IS(condition)                                                                     \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);               \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

static pmfs_t *pool;

static void names(void)
{
    struct stat st;
    OK(pmfs_mkdir(pool, "/dir/", 0755));
    FAILS(EEXIST, pmfs_mkdir(pool, "dir", 0755));
    FAILS(ENOENT, pmfs_mkdir(pool, "none/dir", 0755));
    int handle = pmfs_open(pool, "dir/file", O_CREAT | O_EXCL | O_RDWR, 0640);
    OK(handle);
    FAILS(EEXIST, pmfs_open(pool, "dir/file", O_CREAT | O_EXCL | O_RDWR, 0640));
    OK(pmfs_close(pool, handle));
    FAILS(EBADF, pmfs_close(pool, handle));
    OK(pmfs_stat(pool, "dir/file", &st));
    IS(S_ISREG(st.st_mode) && (st.st_mode & 07777) == 0640 && st.st_uid == geteuid());
    FAILS(ENOTDIR, pmfs_stat(pool, "dir/file/", &st));
    OK(pmfs_link(pool, "dir/file", "hard"));
    OK(pmfs_symlink(pool, "dir/file", "soft"));
    OK(pmfs_symlink(pool, "made", "dangling"));
    OK(pmfs_lstat(pool, "soft", &st));
    IS(S_ISLNK(st.st_mode));
    OK(pmfs_stat(pool, "soft", &st));
    IS(st.st_nlink == 2);
    FAILS(ELOOP, pmfs_open(pool, "soft", O_NOFOLLOW, 0));
    FAILS(ENOENT, pmfs_open(pool, "dangling", O_RDONLY, 0));
    handle = pmfs_open(pool, "dangling", O_CREAT | O_WRONLY, 0600);
    OK(handle);
    OK(pmfs_close(pool, handle));
    OK(pmfs_stat(pool, "made", &st));
    char target[64];
    IS(pmfs_readlink(pool, "soft", target, sizeof target) == 8 && !memcmp(target, "dir/file", 8));
    FAILS(EINVAL, pmfs_readlink(pool, "hard", target, sizeof target));
    OK(pmfs_rename(pool, "hard", "moved", 0));
    FAILS(ENOENT, pmfs_rename(pool, "hard", "moved", 0));
    FAILS(EEXIST, pmfs_rename(pool, "moved", "soft", 1));
    FAILS(EINVAL, pmfs_rename(pool, "moved", "soft", 1 << 30));
    FAILS(EISDIR, pmfs_unlink(pool, "dir"));
    FAILS(ENOTEMPTY, pmfs_rmdir(pool, "dir"));
    OK(pmfs_chmod(pool, "moved", 0604));
    OK(pmfs_chown(pool, "moved", 7, (gid_t)-1));
    struct timespec times[2] = {{12, 34}, {.tv_nsec = UTIME_OMIT}};
    OK(pmfs_utimens(pool, "moved", times));
    OK(pmfs_truncate(pool, "moved", 12345));
    OK(pmfs_stat(pool, "moved", &st));
    IS((st.st_mode & 07777) == 0604 && st.st_uid == 7 && st.st_gid == getegid());
    IS(st.st_atim.tv_sec == 12 && st.st_atim.tv_nsec == 34 && st.st_size == 12345);
    OK(pmfs_utimens(pool, "moved", NULL));
    OK(pmfs_mknod(pool, "device", S_IFBLK | 0600, 0x123456));
    OK(pmfs_stat(pool, "device", &st));
    IS(S_ISBLK(st.st_mode) && st.st_rdev == 0x123456);
    OK(pmfs_mknod(pool, "fifo", S_IFIFO | 0600, 0));
    OK(pmfs_unlink(pool, "fifo"));
    char value[16];
    OK(pmfs_setxattr(pool, "moved", "user.colour", "red", 3, 0));
    FAILS(EEXIST, pmfs_setxattr(pool, "moved", "user.colour", "blue", 4, 1));
    IS(pmfs_getxattr(pool, "moved", "user.colour", NULL, 0) == 3);
    IS(pmfs_getxattr(pool, "moved", "user.colour", value, sizeof value) == 3);
    IS(!memcmp(value, "red", 3));
    FAILS(ERANGE, pmfs_getxattr(pool, "moved", "user.colour", value, 2));
    IS(pmfs_listxattr(pool, "moved", value, sizeof value) == 12 && !strcmp(value, "user.colour"));
    OK(pmfs_removexattr(pool, "moved", "user.colour"));
    FAILS(ENODATA, pmfs_removexattr(pool, "moved", "user.colour"));
    struct statvfs space;
    OK(pmfs_statvfs(pool, &space));
    IS(space.f_bsize == 4096 && space.f_bfree > 0 && space.f_namemax == 255);
    FAILS(EFAULT, pmfs_stat(pool, NULL, &st));
    FAILS(EFAULT, pmfs_stat(NULL, "moved", &st));
}

static void data(void)
{
    struct stat st;
    char text[32];
    int handle = pmfs_open(pool, "data", O_CREAT | O_RDWR, 0600);
    OK(handle);
    IS(pmfs_write(pool, handle, "0123456789", 10) == 10);
    IS(pmfs_lseek(pool, handle, -4, SEEK_END) == 6);
    int twin = pmfs_dup(pool, handle);
    OK(twin);
    IS(pmfs_read(pool, twin, text, 2) == 2 && !memcmp(text, "67", 2));
    IS(pmfs_lseek(pool, handle, 0, SEEK_CUR) == 8);
    OK(pmfs_close(pool, twin));
    FAILS(EINVAL, pmfs_lseek(pool, handle, -1, SEEK_SET));
    FAILS(EINVAL, pmfs_lseek(pool, handle, 0, 99));
    IS(pmfs_pwrite(pool, handle, "xx", 2, 4) == 2);
    IS(pmfs_pread(pool, handle, text, sizeof text, 3) == 7 && !memcmp(text, "3xx6789", 7));
    FAILS(EINVAL, pmfs_pread(pool, handle, text, 1, -1));
    OK(pmfs_fallocate(pool, handle, 0, 8192, 4096));
    OK(pmfs_fstat(pool, handle, &st));
    IS(st.st_size == 12288);
    IS(pmfs_lseek(pool, handle, 0, SEEK_HOLE) == 4096);
    IS(pmfs_lseek(pool, handle, 5000, SEEK_DATA) >= 5000 || errno == ENXIO);
    OK(pmfs_ftruncate(pool, handle, 3));
    FAILS(EOPNOTSUPP, pmfs_fallocate(pool, handle, 1 << 20, 0, 1));
    int clone = pmfs_open(pool, "clone", O_RDWR | O_CREAT, 0644);
    OK(clone);
    OK(pmfs_clone_range(pool, handle, 0, clone, 0, 0));
    IS(pmfs_pread(pool, clone, text, sizeof text, 0) == 3 && !memcmp(text, "012", 3));
    IS(pmfs_pwrite(pool, clone, "x", 1, 1) == 1);
    IS(pmfs_pread(pool, handle, text, sizeof text, 0) == 3 && !memcmp(text, "012", 3));
    IS(pmfs_copy_file_range(pool, clone, 1, handle, 2, 9) == 2);
    IS(pmfs_pread(pool, handle, text, sizeof text, 0) == 4 && !memcmp(text, "01x2", 4));
    OK(pmfs_ftruncate(pool, handle, 3));
    OK(pmfs_pwrite(pool, handle, "012", 3, 0));
    FAILS(EINVAL, pmfs_clone_range(pool, handle, 0, clone, 1, 0));
    FAILS(EBADF, pmfs_clone_range(pool, handle, 0, 99, 0, 0));
    OK(pmfs_close(pool, clone));
    OK(pmfs_unlink(pool, "clone"));
    OK(pmfs_close(pool, handle));
    handle = pmfs_open(pool, "data", O_WRONLY | O_APPEND, 0);
    IS(pmfs_write(pool, handle, "end", 3) == 3);
    FAILS(EBADF, pmfs_read(pool, handle, text, 1));
    OK(pmfs_close(pool, handle));
    handle = pmfs_open(pool, "data", O_RDONLY, 0);
    IS(pmfs_read(pool, handle, text, sizeof text) == 6 && !memcmp(text, "012end", 6));
    FAILS(EBADF, pmfs_write(pool, handle, "x", 1));
    FAILS(EBADF, pmfs_ftruncate(pool, handle, 0));
    /* Unlinked, it can be used until it is closed. */
    OK(pmfs_unlink(pool, "data"));
    IS(pmfs_pread(pool, handle, text, sizeof text, 0) == 6);
    OK(pmfs_close(pool, handle));
    FAILS(EISDIR, pmfs_open(pool, "dir", O_RDWR, 0));
    FAILS(ENOTDIR, pmfs_open(pool, "moved", O_DIRECTORY, 0));
    handle = pmfs_open(pool, "moved", O_RDWR | O_TRUNC, 0);
    OK(handle);
    OK(pmfs_fstat(pool, handle, &st));
    IS(st.st_size == 0);
    OK(pmfs_close(pool, handle));
}

static void inodes_and_directories(void)
{
    struct stat st;
    uint64_t dir = pmfs_lookup(pool, PMFS_ROOT, "dir");
    IS(dir != 0 && pmfs_lookup(pool, PMFS_ROOT, "none") == 0 && errno == ENOENT);
    OK(pmfs_istat(pool, dir, &st));
    IS(S_ISDIR(st.st_mode) && st.st_ino == dir);
    FAILS(ESTALE, pmfs_istat(pool, 1 << 20, &st));
    for (int i = 0; i < 300; i++) {
        char name[32];
        snprintf(name, sizeof name, "dir/entry-%d", i);
        int handle = pmfs_open(pool, name, O_CREAT | O_WRONLY, 0600);
        OK(handle);
        OK(pmfs_close(pool, handle));
    }
    pmfs_dir_t *stream = pmfs_opendir(pool, "dir");
    IS(stream != NULL);
    struct pmfs_dirent entry;
    int count = 0;
    uint64_t half = 0;
    while (pmfs_readdir(stream, &entry) == 1) {
        IS(entry.type == (entry.name[0] == '.' ? 4 : 8));
        if (++count == 150)
            half = entry.cookie;
    }
    IS(count == 303);
    pmfs_seekdir(stream, half);
    count = 0;
    while (pmfs_readdir(stream, &entry) == 1)
        count++;
    IS(count == 153);
    OK(pmfs_closedir(stream));
    IS(pmfs_opendir(pool, "moved") == NULL && errno == ENOTDIR);
    int handle = pmfs_iopen(pool, pmfs_lookup(pool, PMFS_ROOT, "moved"), O_RDWR);
    OK(handle);
    OK(pmfs_close(pool, handle));
}

static void on_signal(int number)
{
    (void)number;
}

static void *interrupt(void *thread)
{
    for (int i = 0; i < 100; i++) {
        usleep(20000);
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
    }
    return NULL;
}

/* A child has what its parent had open, but not its POSIX locks. */
static void locks_and_fork(const char *file)
{
    int handle = pmfs_open(pool, "locked", O_CREAT | O_RDWR, 0600);
    OK(handle);
    IS(pmfs_write(pool, handle, "0123", 4) == 4);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 2};
    OK(pmfs_fcntl_lock(pool, handle, F_SETLK, &lock));
    OK(pmfs_flock(pool, handle, LOCK_EX));
    pid_t child = fork();
    if (child == 0) {
        struct flock asked = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
        OK(pmfs_fcntl_lock(pool, handle, F_GETLK, &asked));
        IS(asked.l_type == F_WRLCK && asked.l_start == 2 && asked.l_len == 2);
        IS(asked.l_pid == getppid());
        asked = (struct flock){.l_type = F_RDLCK, .l_whence = SEEK_SET};
        FAILS(EAGAIN, pmfs_fcntl_lock(pool, handle, F_SETLK, &asked));
        FAILS(EAGAIN, pmfs_fcntl_lock(pool, handle, F_OFD_SETLK, &asked));
        /* The flock is that of the open file, which both have. */
        OK(pmfs_flock(pool, handle, LOCK_SH | LOCK_NB));
        /* A pool opened anew is another owner. */
        pmfs_t *other = pmfs_open_pool(file, 0);
        IS(other != NULL);
        int again = pmfs_open(other, "locked", O_RDWR, 0);
        FAILS(EAGAIN, pmfs_flock(other, again, LOCK_EX | LOCK_NB));
        OK(pmfs_close_pool(other));
        /* It waits for its parent, and a signal ends that. */
        struct sigaction action = {.sa_handler = on_signal};
        sigaction(SIGUSR1, &action, NULL);
        pthread_t self = pthread_self(), helper;
        pthread_create(&helper, NULL, interrupt, &self);
        FAILS(EINTR, pmfs_fcntl_lock(pool, handle, F_SETLKW, &asked));
        IS(pmfs_lseek(pool, handle, 1, SEEK_SET) == 1);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    IS(status == 0);
    IS(pmfs_lseek(pool, handle, 0, SEEK_CUR) == 1);
    lock.l_type = F_UNLCK;
    OK(pmfs_fcntl_lock(pool, handle, F_SETLK, &lock));
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = -1};
    FAILS(EINVAL, pmfs_fcntl_lock(pool, handle, F_SETLK, &lock));
    lock.l_whence = SEEK_CUR;
    FAILS(EINVAL, pmfs_fcntl_lock(pool, handle, F_SETLK, &lock));
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
    OK(pmfs_fcntl_lock(pool, handle, F_OFD_SETLKW, &lock));
    OK(pmfs_flock(pool, handle, LOCK_UN));
    FAILS(EINVAL, pmfs_flock(pool, handle, 77));
    OK(pmfs_close(pool, handle));
}

static void maps(void)
{
    char bytes[4096] = "";
    int handle = pmfs_open(pool, "mapped", O_CREAT | O_RDWR, 0600);
    OK(pmfs_ftruncate(pool, handle, 3 * 4096));
    IS(pmfs_map(pool, handle, 100, 4096, PMFS_MAP_READ) == NULL && errno == EINVAL);
    IS(pmfs_map(pool, handle, 4096, 3 * 4096, PMFS_MAP_READ) == NULL && errno == EINVAL);
    IS(pmfs_map(pool, handle, 0, 4096, 3) == NULL && errno == EINVAL);
    IS(pmfs_map(pool, handle, -4096, 4096, PMFS_MAP_READ) == NULL && errno == EINVAL);
    IS(pmfs_map(pool, 77, 0, 4096, PMFS_MAP_READ) == NULL && errno == EBADF);
    IS(pmfs_map_address(NULL) == NULL && errno == EFAULT);
    FAILS(EFAULT, pmfs_unmap(NULL));

    pmfs_map_t *shared = pmfs_map(pool, handle, 4096, 2 * 4096, PMFS_MAP_SHARED);
    IS(shared != NULL);
    char *at = pmfs_map_address(shared);
    strcpy(at + 10, "stored");
    IS(pmfs_pread(pool, handle, bytes, 7, 4096 + 10) == 7 && !strcmp(bytes, "stored"));
    IS(pmfs_pwrite(pool, handle, "written", 8, 2 * 4096) == 8 && !strcmp(at + 4096, "written"));
    OK(pmfs_map_sync(shared));
    IS(pmfs_map(pool, handle, 0, 4096, PMFS_MAP_ATOMIC) == NULL && errno == EBUSY);
    OK(pmfs_unmap(shared));

    pmfs_map_t *atomic = pmfs_map(pool, handle, 0, 4096, PMFS_MAP_ATOMIC);
    IS(atomic != NULL);
    strcpy(pmfs_map_address(atomic), "kept");
    IS(pmfs_pread(pool, handle, bytes, 5, 0) == 5 && bytes[0] == 0);
    OK(pmfs_map_sync(atomic));
    IS(pmfs_pread(pool, handle, bytes, 5, 0) == 5 && !strcmp(bytes, "kept"));
    OK(pmfs_close(pool, handle));
    strcpy(pmfs_map_address(atomic), "last");
    OK(pmfs_unmap(atomic));

    handle = pmfs_open(pool, "mapped", O_RDONLY, 0);
    IS(pmfs_map(pool, handle, 0, 4096, PMFS_MAP_SHARED) == NULL && errno == EACCES);
    pmfs_map_t *read = pmfs_map(pool, handle, 0, 3 * 4096, PMFS_MAP_READ);
    IS(read != NULL);
    IS(!strcmp(pmfs_map_address(read), "last") && !strcmp((char *)pmfs_map_address(read) + 4096 + 10, "stored"));
    OK(pmfs_unmap(read));
    OK(pmfs_close(pool, handle));
}

static void many_handles(void)
{
    int last = -1, handle;
    int first = pmfs_open(pool, "many", O_CREAT | O_RDWR, 0600);
    OK(first);
    while ((handle = pmfs_dup(pool, first)) >= 0)
        last = handle;
    IS(errno == EMFILE && last == 65535);
    while (last > first)
        OK(pmfs_close(pool, last--));
    OK(pmfs_close(pool, first));
}

int main(int argc, char **argv)
{
    IS(argc == 2);
    IS(pmfs_open_pool(argv[1], 0) == NULL && errno == ENOENT);
    OK(pmfs_make_pool(argv[1], 32 << 20, 0));
    FAILS(EEXIST, pmfs_make_pool(argv[1], 32 << 20, 0));
    OK(pmfs_make_pool(argv[1], 32 << 20, PMFS_FORCE));
    FAILS(EINVAL, pmfs_make_pool(argv[1], 32 << 20, 1 << 20));
    pool = pmfs_open_pool(argv[1], PMFS_ORDERED);
    IS(pool != NULL);
    IS(pmfs_open_pool(argv[1], PMFS_EXCLUSIVE) == NULL && errno == EBUSY);
    names();
    data();
    inodes_and_directories();
    locks_and_fork(argv[1]);
    maps();
    many_handles();
    OK(pmfs_close_pool(pool));
    pool = pmfs_open_pool(argv[1], PMFS_READ_ONLY);
    IS(pool != NULL);
    FAILS(EROFS, pmfs_mkdir(pool, "late", 0700));
    OK(pmfs_close_pool(pool));
    return 0;
}
