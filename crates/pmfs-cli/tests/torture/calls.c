/* Makes calls of libpmfs, or of libc below a directory, as it is told on stdin, a
 * socket, and answers there. See face/c.rs. */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef BY_SYSTEM_CALLS
#include "system_calls.h"
#else
#include <pmfs.h>
#endif

/* Enough for all that is asked for at once. */
enum { ROOM = 8 << 20 };

struct call {
    uint64_t a, b, c, d;
    const char *name, *path, *other, *bytes;
    size_t length;
};

static char asked[ROOM], answer[ROOM];
static size_t answered;
static pmfs_t *pool;

/* 0: nobody is there any more. */
static int take(void *into, size_t length)
{
    for (char *at = into; length > 0;) {
        ssize_t got = read(0, at, length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        at += got;
        length -= (size_t)got;
    }
    return 1;
}

static void give(const void *from, size_t length)
{
    for (const char *at = from; length > 0;) {
        ssize_t put = write(0, at, length);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            exit(0);
        at += put;
        length -= (size_t)put;
    }
}

static const char *part(const char **at, size_t *length)
{
    uint32_t size;
    memcpy(&size, *at, sizeof size);
    const char *is = *at + sizeof size;
    *at = is + size;
    *length = size;
    return is;
}

static int next_call(struct call *call)
{
    uint32_t size;
    if (!take(&size, sizeof size) || size > ROOM || !take(asked, size))
        return 0;
    size_t length;
    const char *at = asked + 4 * sizeof(uint64_t);
    memcpy(call, asked, 4 * sizeof(uint64_t));
    call->name = part(&at, &length);
    call->path = part(&at, &length);
    call->other = part(&at, &length);
    call->bytes = part(&at, &call->length);
    return 1;
}

static void add(const void *bytes, size_t length)
{
    if (answered + length > ROOM) {
        fprintf(stderr, "the answer has no room\n");
        abort();
    }
    memcpy(answer + answered, bytes, length);
    answered += length;
}

static int64_t wanted(ssize_t done, size_t length)
{
    if (done < 0)
        return -1;
    if ((size_t)done == length)
        return 0;
    fprintf(stderr, "%zd of %zu bytes written\n", done, length);
    errno = ENOSPC;
    return -1;
}

static int64_t got(ssize_t length)
{
    if (length > 0)
        answered = (size_t)length;
    return length < 0 ? -1 : 0;
}

static int64_t closed(int64_t result, int handle)
{
    int code = errno;
    if (pmfs_close(pool, handle) != 0)
        return -1;
    errno = code;
    return result;
}

static int64_t list(const char *path)
{
    pmfs_dir_t *dir = pmfs_opendir(pool, path);
    if (dir == NULL)
        return -1;
    struct pmfs_dirent entry;
    int more;
    while ((more = pmfs_readdir(dir, &entry)) == 1)
        if (strcmp(entry.name, ".") != 0 && strcmp(entry.name, "..") != 0)
            add(entry.name, strlen(entry.name) + 1);
    int code = errno;
    if (pmfs_closedir(dir) != 0)
        return -1;
    errno = code;
    return more;
}

static int64_t tell(const struct call *call)
{
    struct stat stat;
    if (pmfs_lstat(pool, call->path, &stat) != 0)
        return -1;
    uint64_t words[] = {stat.st_ino, stat.st_mode, stat.st_nlink, (uint64_t)stat.st_size};
    add(words, sizeof words);
    return 0;
}

/* With a handle for this call alone. */
static int64_t on_file(const struct call *call, int flags)
{
    int handle = pmfs_open(pool, call->path, flags, (mode_t)call->a);
    if (handle < 0)
        return -1;
    int64_t result = 0;
    if (strcmp(call->name, "write") == 0) {
        result = wanted(pmfs_pwrite(pool, handle, call->bytes, call->length, (off_t)call->a), call->length);
    } else if (strcmp(call->name, "append") == 0) {
        result = wanted(pmfs_write(pool, handle, call->bytes, call->length), call->length);
        if (result == 0)
            result = pmfs_lseek(pool, handle, 0, SEEK_CUR);
    } else if (strcmp(call->name, "read") == 0) {
        result = got(pmfs_pread(pool, handle, answer, call->b, (off_t)call->a));
    } else if (strcmp(call->name, "punch") == 0) {
        int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        result = pmfs_fallocate(pool, handle, mode, (off_t)call->a, (off_t)call->b);
    }
    return closed(result, handle);
}

/* d: the kind of lock, twice, and one more if it is to be had alone. */
static int64_t lock(const struct call *call, int unlocks, int waits)
{
    int handle = (int)call->a;
    int alone = call->d & 1;
    if (call->d >> 1 == 3) {
        int operation = unlocks ? LOCK_UN : alone ? LOCK_EX : LOCK_SH;
        return pmfs_flock(pool, handle, operation | (waits ? 0 : LOCK_NB));
    }
    struct flock flock = {
        .l_type = (short)(unlocks ? F_UNLCK : alone ? F_WRLCK : F_RDLCK),
        .l_whence = SEEK_SET,
        .l_start = (off_t)call->b,
        .l_len = (off_t)call->c,
    };
    int posix = call->d >> 1 == 1;
    int command = waits ? (posix ? F_SETLKW : F_OFD_SETLKW) : (posix ? F_SETLK : F_OFD_SETLK);
    return pmfs_fcntl_lock(pool, handle, command, &flock);
}

static int64_t by_handle(const struct call *call)
{
    const char *name = call->name;
    int handle = (int)call->a;
    if (strcmp(name, "close") == 0)
        return pmfs_close(pool, handle);
    if (strcmp(name, "dup") == 0)
        return pmfs_dup(pool, handle);
    if (strcmp(name, "pwrite") == 0)
        return wanted(pmfs_pwrite(pool, handle, call->bytes, call->length, (off_t)call->b), call->length);
    if (strcmp(name, "pread") == 0)
        return got(pmfs_pread(pool, handle, answer, call->c, (off_t)call->b));
    if (strcmp(name, "seek") == 0)
        return pmfs_lseek(pool, handle, (off_t)call->b, SEEK_SET);
    if (strcmp(name, "write next") == 0)
        return wanted(pmfs_write(pool, handle, call->bytes, call->length), call->length);
    if (strcmp(name, "read next") == 0)
        return got(pmfs_read(pool, handle, answer, call->b));
    if (strcmp(name, "lock") == 0)
        return lock(call, 0, 1);
    if (strcmp(name, "try to lock") == 0)
        return lock(call, 0, 0);
    if (strcmp(name, "unlock") == 0)
        return lock(call, 1, 0);
    fprintf(stderr, "%s is no call\n", name);
    abort();
}

/* Child and parent write the same; the child dies with its parent. */
static int64_t write_with_child(const struct call *call)
{
    int handle = pmfs_open(pool, call->path, O_WRONLY | O_TRUNC, 0);
    if (handle < 0)
        return -1;
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        return -1;
    if (child == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent))
        _exit(1);
    int64_t result = 0;
    for (uint64_t times = 0; result == 0 && times < call->a; times++)
        result = wanted(pmfs_write(pool, handle, call->bytes, call->length), call->length);
    if (child == 0) {
        if (result != 0)
            fprintf(stderr, "the child: %s\n", pmfs_error());
        _exit(result != 0);
    }
    int ended;
    if (waitpid(child, &ended, 0) != child || ended != 0) {
        fprintf(stderr, "the child ended with %#x\n", ended);
        errno = ECHILD;
        result = -1;
    }
    return closed(result, handle);
}

static int64_t by_path(const struct call *call)
{
    const char *name = call->name, *path = call->path;
    if (strcmp(name, "create") == 0)
        return on_file(call, O_CREAT | O_EXCL | O_WRONLY);
    if (strcmp(name, "write") == 0 || strcmp(name, "punch") == 0)
        return on_file(call, O_WRONLY);
    if (strcmp(name, "append") == 0)
        return on_file(call, O_WRONLY | O_APPEND);
    if (strcmp(name, "read") == 0)
        return on_file(call, O_RDONLY);
    if (strcmp(name, "open") == 0)
        return pmfs_open(pool, path, O_RDWR, 0);
    if (strcmp(name, "write with child") == 0)
        return write_with_child(call);
    if (strcmp(name, "mkdir") == 0)
        return pmfs_mkdir(pool, path, (mode_t)call->a);
    if (strcmp(name, "symlink") == 0)
        return pmfs_symlink(pool, path, call->other);
    if (strcmp(name, "link") == 0)
        return pmfs_link(pool, path, call->other);
    if (strcmp(name, "unlink") == 0)
        return pmfs_unlink(pool, path);
    if (strcmp(name, "rmdir") == 0)
        return pmfs_rmdir(pool, path);
    if (strcmp(name, "rename") == 0)
        return pmfs_rename(pool, path, call->other, (unsigned)call->a);
    if (strcmp(name, "truncate") == 0)
        return pmfs_truncate(pool, path, (off_t)call->a);
    if (strcmp(name, "chmod") == 0)
        return pmfs_chmod(pool, path, (mode_t)call->a);
    if (strcmp(name, "setxattr") == 0)
        return pmfs_setxattr(pool, path, call->other, call->bytes, call->length, 0);
    if (strcmp(name, "removexattr") == 0)
        return pmfs_removexattr(pool, path, call->other);
    if (strcmp(name, "listxattr") == 0)
        return got(pmfs_listxattr(pool, path, answer, ROOM));
    if (strcmp(name, "getxattr") == 0)
        return got(pmfs_getxattr(pool, path, call->other, answer, ROOM));
    if (strcmp(name, "readlink") == 0)
        return got(pmfs_readlink(pool, path, answer, ROOM));
    if (strcmp(name, "lstat") == 0)
        return tell(call);
    if (strcmp(name, "list") == 0)
        return list(path);
    return by_handle(call);
}

static int64_t make(const struct call *call)
{
    if (strcmp(call->name, "attach") == 0) {
        pool = pmfs_open_pool(call->bytes, 0);
        return pool == NULL ? -1 : 0;
    }
    if (strcmp(call->name, "leave") == 0)
        return pmfs_close_pool(pool);
    return by_path(call);
}

int main(void)
{
    struct call call;
    while (next_call(&call)) {
        answered = 0;
        errno = 0;
        int64_t value = make(&call);
        uint32_t code = value < 0 ? (uint32_t)errno : 0;
        if (code != 0)
            answered = 0;
        if (code == EIO || code == ENOSPC || code == EINVAL || (value < 0 && code == 0))
            fprintf(stderr, "%s %s: %s\n", call.name, call.path, pmfs_error());
        uint32_t head[2] = {value < 0 && code == 0 ? EIO : code, (uint32_t)answered};
        give(head, sizeof head);
        give(&value, sizeof value);
        give(answer, answered);
    }
    return 0;
}
