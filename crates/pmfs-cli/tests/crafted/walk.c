/* Walks a pool by the library for C, as `find -ls` does, and reads what it finds. Exits 2 for
 * a name or a target that no call could have made, 3 for more names than there can be. */
#include <pmfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { NAMES_MAX = 20000 };

static pmfs_t *pool;
static int count;

static void walk(const char *path)
{
    struct pmfs_dirent entry;
    pmfs_dir_t *dir = pmfs_opendir(pool, path);
    while (dir && pmfs_readdir(dir, &entry) == 1) {
        struct stat found;
        char below[4096], target[4096];
        if (!strcmp(entry.name, ".") || !strcmp(entry.name, ".."))
            continue;
        if (!*entry.name || strchr(entry.name, '/'))
            exit(2);
        if (++count > NAMES_MAX)
            exit(3);
        if (snprintf(below, sizeof below, "%s/%s", path, entry.name) >= (int)sizeof below)
            exit(3);
        if (pmfs_lstat(pool, below, &found))
            continue;
        if (found.st_size < 0 || found.st_blocks < 0)
            exit(2);
        if (S_ISLNK(found.st_mode)) {
            ssize_t len = pmfs_readlink(pool, below, target, sizeof target);
            if (len == 0 || (len > 0 && memchr(target, 0, len)))
                exit(2);
        } else if (S_ISREG(found.st_mode)) {
            int file = pmfs_open(pool, below, O_RDONLY, 0);
            if (file >= 0) {
                (void)!pmfs_pread(pool, file, target, sizeof target, 0);
                pmfs_close(pool, file);
            }
        } else if (S_ISDIR(found.st_mode)) {
            walk(below);
        }
    }
    if (dir)
        pmfs_closedir(dir);
}

int main(int argc, char **argv)
{
    (void)argc;
    pool = pmfs_open_pool(argv[1], 0);
    if (!pool)
        return 0;
    walk("");
    pmfs_mkdir(pool, "/made", 0755);
    pmfs_rmdir(pool, "/made");
    pmfs_close_pool(pool);
    return 0;
}
