/* Calls that are newer than most programs, and calls that nobody has: on descriptors of a file
 * and a directory, and by their names. None of them may succeed on what is not the file. */
#include "check.h"
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>

#define CACHESTAT 451
#define FCHMODAT2 452
#define SETXATTRAT 463
#define GETXATTRAT 464
#define LISTXATTRAT 465
#define REMOVEXATTRAT 466
#define OPEN_TREE_ATTR 467
#define FILE_GETATTR 468
#define FILE_SETATTR 469

struct xattr_args {
    unsigned long value;
    unsigned size, flags;
};
static int file, at;
static char buffer[8192];

static void told(const char *what, long answer) {
    say("%s: %ld %s\n", what, answer < 0 ? -1 : answer, answer < 0 ? strerrorname_np(errno) : "");
}
#define TOLD(what) (errno = 0, told(#what, what))

static unsigned mode_of(int fd) {
    struct stat stat;
    NEED(fstat(fd, &stat) == 0);
    return stat.st_mode & 07777;
}

static void modes(void) {
    TOLD(syscall(FCHMODAT2, file, "", 0600, AT_EMPTY_PATH));
    say("%o\n", mode_of(file));
    TOLD(syscall(FCHMODAT2, at, "file", 0640, 0));
    say("%o\n", mode_of(file));
    TOLD(syscall(FCHMODAT2, at, "link", 0644, 0));
    say("%o\n", mode_of(file));
    TOLD(syscall(FCHMODAT2, at, "link", 0600, AT_SYMLINK_NOFOLLOW));
    TOLD(syscall(FCHMODAT2, at, "file", 0604, AT_SYMLINK_NOFOLLOW));
    TOLD(syscall(FCHMODAT2, at, "file", 0600, 0x40));
    TOLD(syscall(FCHMODAT2, at, "", 0750, AT_EMPTY_PATH));
    TOLD(syscall(FCHMODAT2, at, "", 0750, 0));
    TOLD(syscall(FCHMODAT2, AT_FDCWD, in("file"), 0606, 0));
    TOLD(syscall(FCHMODAT2, file, "name", 0606, 0));
    say("%o %o\n", mode_of(file), mode_of(at));
}

static void attributes(void) {
    struct xattr_args given = {(unsigned long)"value", 5, 0}, taken = {(unsigned long)buffer, 100, 0};
    TOLD(syscall(SETXATTRAT, file, "", AT_EMPTY_PATH, "user.a", &given, sizeof given));
    TOLD(syscall(SETXATTRAT, at, "file", 0, "user.b", &given, sizeof given));
    given.flags = XATTR_CREATE;
    TOLD(syscall(SETXATTRAT, at, "file", 0, "user.b", &given, sizeof given));
    given.flags = 77;
    TOLD(syscall(SETXATTRAT, at, "file", 0, "user.b", &given, sizeof given));
    given.flags = 0;
    TOLD(syscall(SETXATTRAT, at, "file", 0x40, "user.b", &given, sizeof given));
    TOLD(syscall(SETXATTRAT, at, "file", 0, "user.b", &given, 8));
    TOLD(syscall(SETXATTRAT, at, "file", 0, "user.b", &given, 5000));
    memcpy(buffer, &given, sizeof given);
    buffer[20] = 1;
    TOLD(syscall(SETXATTRAT, at, "file", 0, "user.b", buffer, 24));
    TOLD(syscall(SETXATTRAT, at, "link", AT_SYMLINK_NOFOLLOW, "user.b", &given, sizeof given));
    TOLD(syscall(GETXATTRAT, file, "", AT_EMPTY_PATH, "user.a", &taken, sizeof taken));
    say("%.5s\n", buffer);
    TOLD(syscall(GETXATTRAT, at, "link", 0, "user.b", &taken, sizeof taken));
    TOLD(syscall(GETXATTRAT, at, "link", AT_SYMLINK_NOFOLLOW, "user.b", &taken, sizeof taken));
    TOLD(syscall(GETXATTRAT, at, "file", 0, "user.none", &taken, sizeof taken));
    taken.flags = 1;
    TOLD(syscall(GETXATTRAT, at, "file", 0, "user.a", &taken, sizeof taken));
    TOLD(syscall(LISTXATTRAT, file, "", AT_EMPTY_PATH, NULL, 0));
    TOLD(syscall(LISTXATTRAT, at, "file", 0, buffer, 3));
    TOLD(syscall(REMOVEXATTRAT, file, "", AT_EMPTY_PATH, "user.a"));
    TOLD(syscall(REMOVEXATTRAT, at, "file", 0, "user.a"));
    TOLD(syscall(REMOVEXATTRAT, AT_FDCWD, in("file"), 0, "user.b"));
    TOLD(fgetxattr(file, "user.b", buffer, 10));
}

/* What succeeds on a file system that shares blocks is in clones.c. */
static void clones(void) {
    int other = file_with("other", "other"), null = open("/dev/null", O_RDONLY);
    TOLD(ioctl(file, FICLONE, -1));
    TOLD(ioctl(file, FICLONE, null));
    int bytes = 0;
    TOLD(ioctl(file, FIGETBSZ, &bytes));
    say("%d\n", bytes);
    close(other), close(null);
}

static void cached(void) {
    unsigned long range[2] = {0, 0}, counts[5] = {0};
    TOLD(syscall(CACHESTAT, file, range, counts, 0));
    TOLD(syscall(CACHESTAT, file, range, counts, 1));
    TOLD(syscall(CACHESTAT, file, NULL, counts, 0));
    TOLD(syscall(CACHESTAT, file, range, NULL, 0));
    TOLD(syscall(CACHESTAT, -1, range, counts, 0));
}

/* Done, it is done to the file; else it is refused as where nobody has it. */
static void honest(const char *what, int fd, long answer, int opens) {
    struct stat one, other;
    int was = errno;
    if (answer >= 0 && opens) {
        NEED(fstat(fd, &one) == 0 && fstat(answer, &other) == 0);
        if (one.st_ino != other.st_ino || one.st_dev != other.st_dev)
            say("%s led to another file\n", what);
        close(answer);
    }
    int refused = was == ENOSYS || was == EOPNOTSUPP || was == ENOTTY;
    say("%s: %s\n", what, answer >= 0 || refused ? "honest" : strerrorname_np(was));
}

static void promoted(void) {
    struct {
        unsigned bytes;
        int type;
        unsigned char handle[128];
    } handle = {.bytes = 128};
    int mount_id;
    unsigned long words[8] = {0};
    const int all[] = {file, at};
    for (int which = 0; which < 2; which++) {
        int fd = all[which];
        handle.bytes = 128;
        errno = 0;
        long answer = syscall(SYS_name_to_handle_at, fd, "", &handle, &mount_id, AT_EMPTY_PATH);
        honest("name_to_handle_at", fd, answer, 0);
        if (answer == 0) {
            errno = 0;
            honest("open_by_handle_at", fd, syscall(SYS_open_by_handle_at, at, &handle, O_RDONLY), 1);
        } else {
            say("open_by_handle_at: honest\n");
        }
        errno = 0;
        honest("open_tree", fd, syscall(SYS_open_tree, fd, "", AT_EMPTY_PATH | O_CLOEXEC), 1);
        errno = 0;
        honest("file_getattr", fd, syscall(FILE_GETATTR, fd, "", words, 24, AT_EMPTY_PATH), 0);
        errno = 0;
        syscall(FILE_SETATTR, fd, "", words, 24, AT_EMPTY_PATH);
        say("file_setattr: %s\n", errno == EBADF || errno == EINVAL ? strerrorname_np(errno) : "honest");
    }
    int twin = dup(file);
    errno = 0;
    honest("kcmp", file, syscall(SYS_kcmp, getpid(), getpid(), 0, file, twin) == 0 ? 0 : -1, 0);
    close(twin);
}

/* A file for a loop device. Where there are no such devices for the program: said too. */
static void devices(void) {
    int control = open("/dev/loop-control", O_RDWR), number = control < 0 ? -1 : ioctl(control, 0x4C82 /* LOOP_CTL_GET_FREE */);
    char path[40], got[4] = "";
    snprintf(path, sizeof path, "/dev/loop%d", number);
    int loop = number < 0 ? -1 : open(path, O_RDWR);
    if (loop < 0) {
        say("loop: done and read\n");
        return;
    }
    int image = file_with("image", "");
    NEED(ftruncate(image, 4096) == 0 && pwrite(image, "abcd", 4, 0) == 4);
    errno = 0;
    long answer = ioctl(loop, 0x4C00 /* LOOP_SET_FD */, image);
    int same = answer < 0 ? errno == EOPNOTSUPP : pread(loop, got, 4, 0) == 4 && !memcmp(got, "abcd", 4);
    say("loop: %s\n", same ? "done and read" : answer < 0 ? strerrorname_np(errno) : "of something else");
    if (answer == 0)
        ioctl(loop, 0x4C01 /* LOOP_CLR_FD */);
    close(image), close(loop), close(control);
}

/* No kernel has them yet; no later one may do them to a placeholder. */
static void nobodys(void) {
    for (int number = 470; number < 512; number++) {
        FAILS(ENOSYS, syscall(number, file, buffer, 0, 0, 0, 0));
        FAILS(ENOSYS, syscall(number, at, "file", buffer, 0, 0, 0));
    }
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    umask(022);
    file = file_with("file", "text");
    NEED(symlink("file", in("link")) == 0);
    at = open(dir, O_RDONLY | O_DIRECTORY);
    NEED(at >= 0);
    modes();
    attributes();
    clones();
    cached();
    promoted();
    devices();
    nobodys();
    return failures;
}
