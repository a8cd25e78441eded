/*
 * libpmfs: a PMFS pool from C, without a mount and without system calls.
 *
 * Functions answer as their namesakes of POSIX: 0 or a count, or -1 with errno set; pmfs_error()
 * has the cause in words. Paths are those inside the pool, from its root, with or without a slash
 * in front. Every call is atomic, and durable when it returns: there is no fsync. A process that
 * may open the pool may do everything in it: permissions are kept, not enforced. Modes are taken
 * as they are given: there is no umask.
 *
 * A pool may be used by any number of threads, processes and mounts at once. After fork the child
 * goes on with the pool and its open files; do not fork while another thread opens or closes. A
 * process that is killed harms nobody.
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

/* A pool that this process has open. */
typedef struct pmfs pmfs_t;
/* A directory that is being read. */
typedef struct pmfs_dir pmfs_dir_t;
/* A part of a file, at an address. */
typedef struct pmfs_map pmfs_map_t;

/* pmfs_open_pool: writes may tear in a crash, as on ext4; faster for who has a log of his own. */
#define PMFS_ORDERED 1
/* pmfs_open_pool: refuse changes. */
#define PMFS_READ_ONLY 2
/* pmfs_open_pool: fail if anybody has the pool open, and let nobody in. */
#define PMFS_EXCLUSIVE 4
/* pmfs_make_pool: overwrite what is there. */
#define PMFS_FORCE 8

/* pmfs_map: to be read alone. */
#define PMFS_MAP_READ 0
/* pmfs_map: all see what is stored at once; it is durable once pmfs_map_sync has returned. */
#define PMFS_MAP_SHARED 1
/* pmfs_map: nobody sees what is stored until pmfs_map_sync, which is all or nothing:
 * after a crash the file is as of one of them. No other process maps the file
 * meanwhile, and this one each part of it once. */
#define PMFS_MAP_ATOMIC 2

/* The inode of the root directory. */
#define PMFS_ROOT 2

/* The cause of this thread's last failure, with a way out. Good until its next call. */
const char *pmfs_error(void);

/* Makes a pool of so many bytes. */
int pmfs_make_pool(const char *file, uint64_t size, int flags);
/* Opens a pool; NULL if it can't be. */
pmfs_t *pmfs_open_pool(const char *file, int flags);
/* Closes it, and all handles. Close directories that are being read, and unmap, before;
 * nothing may use the pool any more. */
int pmfs_close_pool(pmfs_t *pool);

/* By path. */
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

/* By handle: what pmfs_open gave. Handles are the pool's, not descriptors of the kernel. */
int pmfs_close(pmfs_t *pool, int handle);
int pmfs_dup(pmfs_t *pool, int handle);
ssize_t pmfs_read(pmfs_t *pool, int handle, void *into, size_t size);
ssize_t pmfs_write(pmfs_t *pool, int handle, const void *from, size_t size);
ssize_t pmfs_pread(pmfs_t *pool, int handle, void *into, size_t size, off_t offset);
ssize_t pmfs_pwrite(pmfs_t *pool, int handle, const void *from, size_t size, off_t offset);
/* SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE. */
off_t pmfs_lseek(pmfs_t *pool, int handle, off_t offset, int whence);
int pmfs_fstat(pmfs_t *pool, int handle, struct stat *into);
int pmfs_ftruncate(pmfs_t *pool, int handle, off_t size);
int pmfs_fallocate(pmfs_t *pool, int handle, int mode, off_t offset, off_t size);
/* LOCK_SH, LOCK_EX, LOCK_UN, with LOCK_NB: flock(2). */
int pmfs_flock(pmfs_t *pool, int handle, int operation);
/* F_GETLK, F_SETLK, F_SETLKW and their F_OFD_ kin: fcntl(2). l_whence has to be SEEK_SET. */
int pmfs_fcntl_lock(pmfs_t *pool, int handle, int command, struct flock *lock);

/* Maps a part of a file, from the start of a block of 4 KiB on, not past the file's end: its
 * loads and stores reach the pool's memory. NULL if it can't be. The handle may be closed, and
 * the file made shorter: what is cut off reads as zeros. A child of fork does not have it. */
pmfs_map_t *pmfs_map(pmfs_t *pool, int handle, off_t at, size_t size, int mode);
void *pmfs_map_address(pmfs_map_t *map);
/* Makes what was stored durable. Of an atomic one nobody may store meanwhile. */
int pmfs_map_sync(pmfs_map_t *map);
/* Syncs and unmaps it; where the first fails, it stays. */
int pmfs_unmap(pmfs_map_t *map);

/* By inode: for who keeps track of files himself. */
/* The inode of a name in a directory; 0 if there is none. */
uint64_t pmfs_lookup(pmfs_t *pool, uint64_t dir, const char *name);
int pmfs_istat(pmfs_t *pool, uint64_t inode, struct stat *into);
int pmfs_iopen(pmfs_t *pool, uint64_t inode, int flags);

/* Directories. */
struct pmfs_dirent {
    uint64_t inode;
    /* Where pmfs_seekdir goes on behind this entry. */
    uint64_t cookie;
    /* DT_REG, DT_DIR, ... */
    unsigned char type;
    /* Ends with a NUL. */
    char name[256];
};
pmfs_dir_t *pmfs_opendir(pmfs_t *pool, const char *path);
/* 1: an entry; 0: no more; -1: failed. */
int pmfs_readdir(pmfs_dir_t *dir, struct pmfs_dirent *into);
void pmfs_seekdir(pmfs_dir_t *dir, uint64_t cookie);
int pmfs_closedir(pmfs_dir_t *dir);

#ifdef __cplusplus
}
#endif
#endif
