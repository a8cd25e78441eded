/* What calls.c needs of <pmfs.h>, by libc's own calls below a directory: for a program
 * that pmfs run starts. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/xattr.h>

typedef struct { char root[2048]; } pmfs_t;
typedef DIR pmfs_dir_t;
struct pmfs_dirent { char name[256]; };

static pmfs_t below;

/* Two at a time. */
static const char *full(pmfs_t *pool, const char *path)
{
    static char room[2][8192];
    static int turn;
    char *at = room[turn++ % 2];
    snprintf(at, sizeof room[0], "%s/%s", pool->root, path);
    return at;
}

/* The directory instead of the pool. */
static pmfs_t *pmfs_open_pool(const char *root, int flags)
{
    struct stat stat;
    (void)flags;
    umask(0);
    snprintf(below.root, sizeof below.root, "%s", root);
    return lstat(root, &stat) == 0 ? &below : NULL;
}

static int pmfs_close_pool(pmfs_t *pool)
{
    (void)pool;
    return 0;
}

static const char *pmfs_error(void) { return strerror(errno); }

/* Nothing has to be told of a pool where a number is enough. */
#define pmfs_pwrite(pool, ...) pwrite(__VA_ARGS__)
#define pmfs_pread(pool, ...) pread(__VA_ARGS__)
#define pmfs_write(pool, ...) write(__VA_ARGS__)
#define pmfs_read(pool, ...) read(__VA_ARGS__)
#define pmfs_lseek(pool, ...) lseek(__VA_ARGS__)
#define pmfs_fallocate(pool, ...) fallocate(__VA_ARGS__)
#define pmfs_flock(pool, ...) flock(__VA_ARGS__)
#define pmfs_fcntl_lock(pool, ...) fcntl(__VA_ARGS__)
#define pmfs_close(pool, ...) close(__VA_ARGS__)
#define pmfs_dup(pool, ...) dup(__VA_ARGS__)
#define pmfs_opendir(pool, path) opendir(full(pool, path))
#define pmfs_closedir(dir) closedir(dir)

static int pmfs_readdir(pmfs_dir_t *dir, struct pmfs_dirent *entry)
{
    errno = 0;
    struct dirent *next = readdir(dir);
    if (next == NULL)
        return errno == 0 ? 0 : -1;
    snprintf(entry->name, sizeof entry->name, "%s", next->d_name);
    return 1;
}

#define pmfs_open(pool, path, ...) open(full(pool, path), __VA_ARGS__)
#define pmfs_mkdir(pool, path, mode) mkdir(full(pool, path), mode)
#define pmfs_symlink(pool, target, path) symlink(target, full(pool, path))
#define pmfs_link(pool, from, to) link(full(pool, from), full(pool, to))
#define pmfs_unlink(pool, path) unlink(full(pool, path))
#define pmfs_rmdir(pool, path) rmdir(full(pool, path))
#define pmfs_rename(pool, from, to, flags) renameat2(AT_FDCWD, full(pool, from), AT_FDCWD, full(pool, to), flags)
#define pmfs_truncate(pool, path, length) truncate(full(pool, path), length)
#define pmfs_chmod(pool, path, mode) chmod(full(pool, path), mode)
#define pmfs_setxattr(pool, path, ...) lsetxattr(full(pool, path), __VA_ARGS__)
#define pmfs_removexattr(pool, path, name) lremovexattr(full(pool, path), name)
#define pmfs_listxattr(pool, path, ...) llistxattr(full(pool, path), __VA_ARGS__)
#define pmfs_getxattr(pool, path, ...) lgetxattr(full(pool, path), __VA_ARGS__)
#define pmfs_readlink(pool, path, ...) readlink(full(pool, path), __VA_ARGS__)
#define pmfs_lstat(pool, path, stat) lstat(full(pool, path), stat)
