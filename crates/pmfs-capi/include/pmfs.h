/*
 * libpmfs: a PMFS pool from C, without a mount and without system calls.
 *
 * Functions return what the POSIX functions of the same names do: 0, a handle or a count of bytes
 * on success, or -1 with errno set. pmfs_error() then gives the cause in words. The errno values
 * are those of POSIX. EIO means that the medium failed, that the pool is damaged, or that other
 * processes have declared this one dead.
 *
 * Paths start at the pool's root, with or without a leading slash. Offsets and sizes are in bytes.
 * Every call is atomic, and durable when it returns: there is no fsync. Permissions are stored but
 * not enforced: a process that may open the pool may do everything in it. Modes are stored as
 * given: there is no umask.
 *
 * Any number of threads, processes and mounts may use a pool at once. After fork, the child may
 * use the pool and the open files; no other thread may open or close files during the fork. A
 * killed process harms no other.
 */
#ifndef PMFS_H
#define PMFS_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A pool that this process has opened. */
typedef struct pmfs pmfs_t;
/* A directory that is being read. */
typedef struct pmfs_dir pmfs_dir_t;
/* A mapped part of a file. */
typedef struct pmfs_map pmfs_map_t;

/* pmfs_open_pool: a crash may tear writes, as on ext4. Faster, for programs with their own log. */
#define PMFS_ORDERED 1
/* pmfs_open_pool: refuse changes. */
#define PMFS_READ_ONLY 2
/* pmfs_open_pool: fail with EBUSY if another process has the pool open; keep others out. */
#define PMFS_EXCLUSIVE 4
/* pmfs_make_pool: overwrite an existing file's content. */
#define PMFS_FORCE 8

/* pmfs_map: for loads alone. */
#define PMFS_MAP_READ 0
/* pmfs_map: others see stores at once; they are durable once pmfs_map_sync has returned. */
#define PMFS_MAP_SHARED 1
/* pmfs_map: others see no store until pmfs_map_sync, which is all or nothing: after a crash the
 * file has the state of one sync. Meanwhile no other process can map the file, and this one can
 * map each part of it once. */
#define PMFS_MAP_ATOMIC 2

/* The inode of the root directory. */
#define PMFS_ROOT 2

/* The cause of this thread's last failure, and the remedy. Valid until the thread's next call. */
const char *pmfs_error(void);

/* Makes a pool of `size` bytes. `flags` is 0 or PMFS_FORCE. Returns 0 or -1. */
int pmfs_make_pool(const char *file, uint64_t size, int flags);
/* Opens a pool, with PMFS_ flags or 0. Returns NULL with errno set if that fails. */
pmfs_t *pmfs_open_pool(const char *file, int flags);
/* Closes the pool and all handles. Directories and maps must be closed before, and no other
 * thread may use the pool. */
int pmfs_close_pool(pmfs_t *pool);

/* By path. pmfs_open returns a handle of the pool, which is no descriptor of the kernel. */
int pmfs_open(pmfs_t *pool, const char *path, int flags, mode_t mode);
int pmfs_stat(pmfs_t *pool, const char *path, struct stat *into);
int pmfs_lstat(pmfs_t *pool, const char *path, struct stat *into);
int pmfs_mkdir(pmfs_t *pool, const char *path, mode_t mode);
int pmfs_mknod(pmfs_t *pool, const char *path, mode_t mode, dev_t device);
int pmfs_rmdir(pmfs_t *pool, const char *path);
int pmfs_unlink(pmfs_t *pool, const char *path);
int pmfs_rename(pmfs_t *pool, const char *from, const char *to, unsigned flags);
int pmfs_link(pmfs_t *pool, const char *from, const char *to);
int pmfs_symlink(pmfs_t *pool, const char *target, const char *path);
ssize_t pmfs_readlink(pmfs_t *pool, const char *path, char *into, size_t size);
int pmfs_truncate(pmfs_t *pool, const char *path, off_t size);
int pmfs_chmod(pmfs_t *pool, const char *path, mode_t mode);
int pmfs_chown(pmfs_t *pool, const char *path, uid_t owner, gid_t group);
int pmfs_utimens(pmfs_t *pool, const char *path, const struct timespec times[2]);
ssize_t pmfs_getxattr(pmfs_t *pool, const char *path, const char *name, void *into, size_t size);
int pmfs_setxattr(pmfs_t *pool, const char *path, const char *name, const void *value, size_t size,
                  int flags);
ssize_t pmfs_listxattr(pmfs_t *pool, const char *path, char *into, size_t size);
int pmfs_removexattr(pmfs_t *pool, const char *path, const char *name);
int pmfs_statvfs(pmfs_t *pool, struct statvfs *into);

/* By handle, as pmfs_open, pmfs_dup and pmfs_iopen return it. */
int pmfs_close(pmfs_t *pool, int handle);
int pmfs_dup(pmfs_t *pool, int handle);
ssize_t pmfs_read(pmfs_t *pool, int handle, void *into, size_t size);
ssize_t pmfs_write(pmfs_t *pool, int handle, const void *from, size_t size);
ssize_t pmfs_pread(pmfs_t *pool, int handle, void *into, size_t size, off_t offset);
ssize_t pmfs_pwrite(pmfs_t *pool, int handle, const void *from, size_t size, off_t offset);
/* `whence`: SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA or SEEK_HOLE. Returns the new offset. */
off_t pmfs_lseek(pmfs_t *pool, int handle, off_t offset, int whence);
int pmfs_fstat(pmfs_t *pool, int handle, struct stat *into);
int pmfs_ftruncate(pmfs_t *pool, int handle, off_t size);
int pmfs_fallocate(pmfs_t *pool, int handle, int mode, off_t offset, off_t size);
/* As copy_file_range(2), at these offsets. Whole blocks that align are shared, not copied. */
ssize_t pmfs_copy_file_range(pmfs_t *pool, int from, off_t from_offset, int to, off_t to_offset, size_t size);
/* Has both files share the blocks of a range, as FICLONERANGE of ioctl(2) does: whole blocks, and a
 * part of one at the source's end. A `size` of 0 means up to there. EBUSY if a program has mapped
 * blocks of either file. */
int pmfs_clone_range(pmfs_t *pool, int from, off_t from_offset, int to, off_t to_offset, off_t size);
/* `operation` as in flock(2): LOCK_SH, LOCK_EX or LOCK_UN, each with or without LOCK_NB. */
int pmfs_flock(pmfs_t *pool, int handle, int operation);
/* `command` as in fcntl(2): F_GETLK, F_SETLK, F_SETLKW, F_OFD_GETLK, F_OFD_SETLK or
 * F_OFD_SETLKW. l_whence must be SEEK_SET. */
int pmfs_fcntl_lock(pmfs_t *pool, int handle, int command, struct flock *lock);

/* Maps `size` bytes of a file at `at`, a multiple of 4096; the end is not past the file's end.
 * Loads and stores reach the pool's memory. Returns NULL with errno set if that fails. The handle
 * may be closed afterwards. If the file is truncated, the bytes cut off read as zeros. A forked
 * child does not have the map. */
pmfs_map_t *pmfs_map(pmfs_t *pool, int handle, off_t at, size_t size, int mode);
/* The address of the first byte. */
void *pmfs_map_address(pmfs_map_t *map);
/* Makes the stores durable. No thread may store to an atomic map meanwhile. */
int pmfs_map_sync(pmfs_map_t *map);
/* Syncs and unmaps. If the sync fails, the map stays. */
int pmfs_unmap(pmfs_map_t *map);

/* By inode, for programs that keep inode numbers. */
/* The inode of a name in a directory; 0 with errno set if that fails. */
uint64_t pmfs_lookup(pmfs_t *pool, uint64_t dir, const char *name);
int pmfs_istat(pmfs_t *pool, uint64_t inode, struct stat *into);
int pmfs_iopen(pmfs_t *pool, uint64_t inode, int flags);

/* Directories. */
struct pmfs_dirent {
    uint64_t inode;
    /* The position behind this entry, for pmfs_seekdir. */
    uint64_t cookie;
    /* DT_REG, DT_DIR, ... */
    unsigned char type;
    /* The name, ended by NUL. */
    char name[256];
};
pmfs_dir_t *pmfs_opendir(pmfs_t *pool, const char *path);
/* Returns 1 for an entry, 0 at the end, -1 after a failure. */
int pmfs_readdir(pmfs_dir_t *dir, struct pmfs_dirent *into);
void pmfs_seekdir(pmfs_dir_t *dir, uint64_t cookie);
int pmfs_closedir(pmfs_dir_t *dir);

#ifdef __cplusplus
}
#endif
#endif
