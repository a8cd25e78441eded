/* Every system call of the library's table, with each of its pointers leading nowhere in turn:
 * what the kernel says on a plain directory, it says; nothing is changed, and no signal comes. */
#include "check.h"
#include <dirent.h>
#include <linux/aio_abi.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/xattr.h>

/* Newer than the system's headers may be. */
#ifndef SYS_cachestat
#define SYS_cachestat 451
#define SYS_fchmodat2 452
#endif
#ifndef SYS_setxattrat
#define SYS_setxattrat 463
#define SYS_getxattrat 464
#define SYS_listxattrat 465
#define SYS_removexattrat 466
#endif

#define PAGE 4096
#ifndef SYS_mseal
#define SYS_mseal 462
#endif
static char *const nowhere[] = {NULL, (char *)8, (char *)0x500000000000, (char *)0xffff800000000000, (char *)-1, (char *)0x8000000000000000};
#define WAYS (sizeof nowhere / sizeof *nowhere)
/* What an argument is: left as it is, a pointer that leads nowhere, or one that may be NULL. */
enum { KEPT = '.', POINTER = 'p', OPTIONAL = 'o' };

struct row {
    const char *name;
    long number;
    const char *kinds;
    long arguments[6];
    /* In a child: the process is another one afterwards, or the library has stepped back. */
    int apart;
};

/* Of the room that calls are given: one for each kind of thing. */
static char buffer[8192];
static char file[256], fresh[256], below[256], linked[256], script[256];
static int fd, at, pair[2], watches, marks;
static aio_context_t context;
static struct flock lock;

/* What a call could have changed. */
static void look(char *into, size_t bytes) {
    struct stat stat;
    size_t len = 0;
    int names = 0;
    long number = 0;
    const char *all[] = {dir, file, below};
    for (int which = 0; which < 3; which++) {
        NEED(lstat(all[which], &stat) == 0);
        /* Some file systems move a file's times before they look at what is to be written. */
        struct timespec time = which == 1 ? (struct timespec){0, 0} : stat.st_mtim;
        len += snprintf(into + len, bytes - len, "%lx %o %lu %u %lld %ld.%ld;", stat.st_ino, stat.st_mode, stat.st_nlink, stat.st_uid,
                        (long long)stat.st_size, time.tv_sec, time.tv_nsec);
    }
    DIR *names_of = opendir(dir);
    for (struct dirent *entry; (entry = readdir(names_of));)
        names++;
    closedir(names_of);
    char content[32] = "", list[64] = "";
    ssize_t read_there = pread(fd, content, 16, 0), listed = flistxattr(fd, list, sizeof list);
    number = lseek(fd, 0, SEEK_CUR);
    snprintf(into + len, bytes - len, "%d %zd %.16s %ld %zd %.6s %d", names, read_there, content, number, listed, list, fcntl(fd, F_GETFL));
}

static void one(const struct row *row, int argument, size_t way) {
    long given[6];
    memcpy(given, row->arguments, sizeof given);
    given[argument] = (long)nowhere[way];
    errno = 0;
    long answer = syscall(row->number, given[0], given[1], given[2], given[3], given[4], given[5]);
    if (answer != -1 || errno != EFAULT)
        say("%s, argument %d, %p: %ld, errno %d\n", row->name, argument, nowhere[way], answer, errno);
}

static void each(const struct row *row) {
    for (int argument = 0; row->kinds[argument]; argument++)
        for (size_t way = row->kinds[argument] == OPTIONAL; row->kinds[argument] != KEPT && way < WAYS; way++)
            one(row, argument, way);
}

static void row_by_row(const struct row *rows, int count) {
    static char before[1000], after[1000];
    for (int which = 0; which < count; which++) {
        const struct row *row = &rows[which];
        look(before, sizeof before);
        if (row->apart) {
            pid_t pid = fork();
            if (pid == 0) {
                each(row);
                _exit(0);
            }
            CHECK(child_ends_with(pid, 0));
        } else {
            each(row);
        }
        look(after, sizeof after);
        if (strcmp(before, after)) {
            failures++;
            say("%s: %s became %s\n", row->name, before, after);
        }
    }
}

#define ROW(name, kinds, ...) {#name, SYS_##name, kinds, {__VA_ARGS__}, 0}
#define APART(name, kinds, ...) {#name, SYS_##name, kinds, {__VA_ARGS__}, 1}
#define P(thing) ((long)(thing))
#define HERE AT_FDCWD

static void by_descriptor(void) {
    struct iovec *parts = (struct iovec *)buffer;
    long range[2] = {0};
    struct row rows[] = {
        ROW(read, ".p.", fd, 0, 16), ROW(write, ".p.", fd, 0, 16), ROW(pread64, ".p..", fd, 0, 16), ROW(pwrite64, ".p..", fd, 0, 16),
        ROW(readv, ".p.", fd, P(parts), 1), ROW(writev, ".p.", fd, P(parts), 1), ROW(preadv, ".p.", fd, P(parts), 1),
        ROW(pwritev, ".p.", fd, P(parts), 1), ROW(preadv2, ".p.", fd, P(parts), 1, -1, -1), ROW(pwritev2, ".p.", fd, P(parts), 1, -1, -1),
        ROW(fstat, ".p", fd), ROW(fstatfs, ".p", fd), ROW(getdents64, ".p.", at, 0, 1000),
        ROW(ioctl, "..p", fd, 0x541B /* FIONREAD */), ROW(ioctl, "..p", fd, 0x5421 /* FIONBIO */), ROW(ioctl, "..p", fd, 0x5401 /* TCGETS */),
        ROW(fcntl, "..p", fd, F_SETLK), ROW(fcntl, "..p", fd, F_SETLKW), ROW(fcntl, "..p", fd, F_GETLK), ROW(fcntl, "..p", fd, F_OFD_SETLK),
        ROW(fcntl, "..p", fd, F_OFD_SETLKW), ROW(fcntl, "..p", fd, F_OFD_GETLK), ROW(fcntl, "..p", fd, 16 /* F_GETOWN_EX */),
        ROW(fcntl, "..p", fd, 15 /* F_SETOWN_EX */),
        ROW(fsetxattr, ".pp..", fd, P("user.b"), P(buffer), 10), ROW(fgetxattr, ".pp.", fd, P("user.a"), P(buffer), 100),
        ROW(flistxattr, ".p.", fd, 0, 100), ROW(fremovexattr, ".p", fd),
        ROW(cachestat, ".pp.", fd, P(range), P(buffer + 100)),
        ROW(sendfile, "..o.", fd, fd, 0, 10), ROW(copy_file_range, ".o.o..", fd, 0, fd, 0, 10),
        ROW(bind, ".p.", pair[0], 0, 110), ROW(connect, ".p.", pair[0], 0, 110),
        ROW(sendmsg, ".p.", pair[0]), ROW(sendmmsg, ".p..", pair[0], 0, 1),
        ROW(io_submit, "..p", context, 1), ROW(io_getevents, "....o", context, 1, 1, P(buffer)), ROW(io_pgetevents, "....oo", context, 1, 1, P(buffer)),
        ROW(inotify_add_watch, ".p.", watches, 0, IN_CREATE),
        ROW(fanotify_mark, "....p", marks, FAN_MARK_ADD, FAN_OPEN, HERE),
    };
    row_by_row(rows, sizeof rows / sizeof *rows);
}

static void by_path(void) {
    struct open_how how = {.flags = O_RDONLY};
    struct {
        unsigned long value;
        unsigned size, flags;
    } given = {P(buffer), 10, 0};
    struct row rows[] = {
        ROW(open, "p..", 0, O_RDONLY), ROW(open, "p..", 0, O_RDWR | O_CREAT | O_TRUNC, 0644), ROW(creat, "p.", 0, 0644),
        ROW(openat, ".p..", HERE, 0, O_RDWR | O_CREAT, 0644), ROW(openat, ".p..", at, 0, O_RDONLY),
        ROW(openat2, ".pp.", HERE, P(file), P(&how), sizeof how), ROW(stat, "pp", P(file), P(buffer)), ROW(lstat, "pp", P(file), P(buffer)),
        ROW(newfstatat, ".pp.", at, P("file"), P(buffer)), ROW(newfstatat, "..p.", fd, P(""), 0, AT_EMPTY_PATH),
        ROW(statx, ".p..p", at, P("file"), 0, STATX_ALL, P(buffer)),
        ROW(access, "p.", 0, F_OK), ROW(faccessat, ".p.", at, 0, F_OK), ROW(faccessat2, ".p..", at, 0, R_OK, AT_EACCESS),
        ROW(readlink, "pp.", P(linked), P(buffer), 100), ROW(readlinkat, ".pp.", at, P("link"), P(buffer), 100), ROW(mkdir, "p.", 0, 0755),
        ROW(mkdirat, ".p.", at, 0, 0755), ROW(mknod, "p..", 0, S_IFREG | 0644), ROW(mknodat, ".p..", at, 0, S_IFIFO | 0644), ROW(rmdir, "p"),
        ROW(unlink, "p"), ROW(unlinkat, ".p.", at), ROW(unlinkat, ".p.", at, 0, AT_REMOVEDIR), ROW(rename, "pp", P(file), P(fresh)),
        ROW(renameat, ".p.p", at, P("file"), at, P("new")), ROW(renameat2, ".p.p.", at, P("file"), at, P("new"), 1 /* RENAME_NOREPLACE */),
        ROW(link, "pp", P(file), P(fresh)), ROW(linkat, ".p.p.", at, P("file"), at, P("new")), ROW(symlink, "pp", P("file"), P(fresh)),
        ROW(symlinkat, "p.p", P("file"), at, P("new")), ROW(chmod, "p.", 0, 0600), ROW(fchmodat, ".p.", at, 0, 0600), ROW(chown, "p..", 0, 1, 1),
        ROW(lchown, "p..", 0, 1, 1), ROW(fchownat, ".p...", at, 0, 1, 1), ROW(truncate, "p."), ROW(utime, "po", P(file), 0),
        ROW(utimes, "po", P(file), 0), ROW(futimesat, ".oo", at, P("file")), ROW(utimensat, ".oo.", at, P("file")),
        ROW(setxattr, "ppp..", P(file), P("user.b"), P(buffer), 10), ROW(lsetxattr, "ppp..", P(file), P("user.b"), P(buffer), 10),
        ROW(getxattr, "ppp.", P(file), P("user.a"), P(buffer), 100), ROW(lgetxattr, "ppp.", P(file), P("user.a"), P(buffer), 100),
        ROW(listxattr, "pp.", P(file), P(buffer), 100), ROW(llistxattr, "pp.", P(file), P(buffer), 100),
        ROW(removexattr, "pp", P(file), P("user.a")), ROW(lremovexattr, "pp", P(file), P("user.a")), ROW(statfs, "pp", P(file), P(buffer)),
        ROW(chdir, "p"), ROW(getcwd, "p.", 0, 100),
        ROW(fchmodat2, ".p..", at, 0, 0600), ROW(setxattrat, ".p.pp.", at, P("file"), 0, P("user.b"), P(&given), sizeof given),
        ROW(getxattrat, ".p.pp.", at, P("file"), 0, P("user.a"), P(&given), sizeof given),
        ROW(listxattrat, ".p.p.", at, P("file"), 0, P(buffer), 100), ROW(removexattrat, ".p.p", at, P("file"), 0, P("user.a")),
    };
    row_by_row(rows, sizeof rows / sizeof *rows);
}

static void of_the_process(void) {
    static char *words[] = {"true", NULL};
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct sigaction action = {.sa_handler = SIG_IGN};
    struct row rows[] = {
        ROW(setrlimit, ".p", RLIMIT_NOFILE), ROW(prlimit64, "..oo", 0, RLIMIT_FSIZE), ROW(clone3, "p.", 0, sizeof(struct clone_args)),
        ROW(execve, "poo", P("/bin/true"), P(words), 0), ROW(execve, "poo", P(script), P(words), 0),
        ROW(execveat, ".poo.", at, P("script"), P(words)), ROW(rt_sigaction, ".oo.", SIGUSR1, 0, 0, 8),
        ROW(rt_sigaction, ".o..", SIGSEGV, P(&action), 0, 8), ROW(rt_sigprocmask, ".oo.", SIG_BLOCK, 0, 0, 8), ROW(sigaltstack, "oo"),
        ROW(setgroups, ".p", 1), ROW(capset, "pp", P(&head), P(buffer)), ROW(chroot, "p"),
        APART(seccomp, "..p", 1 /* SECCOMP_SET_MODE_FILTER */, 0), APART(prctl, "..p", PR_SET_SECCOMP, 2),
        /* The library's own, which nobody else may mean anything by. */
        ROW(vserver, "ppp", 0, P(buffer), P(buffer)),
    };
    row_by_row(rows, sizeof rows / sizeof *rows);
}

/* Addresses rather than pointers: the kernel says what it says of them. */
static void of_memory(void) {
    int all = PROT_READ | PROT_WRITE;
    struct row rows[] = {
        ROW(mmap, "o.....", 0, PAGE, all, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 8), ROW(munmap, "o.", 0, PAGE), ROW(mprotect, "p..", 0, PAGE, all),
        ROW(pkey_mprotect, "p...", 0, PAGE, all, -1), ROW(mremap, "p....", 0, PAGE, 2 * PAGE, MREMAP_MAYMOVE), ROW(msync, "p..", 0, PAGE, MS_SYNC),
        ROW(madvise, "p..", 0, PAGE, MADV_DONTNEED), ROW(madvise, "p..", 0, PAGE, MADV_REMOVE),
        ROW(remap_file_pages, "p....", 0, PAGE), ROW(mseal, "p..", 0, PAGE), ROW(shmat, ".p.", -1, 0, SHM_REMAP),
        ROW(vmsplice, ".p..", pair[0], 0, 1), ROW(process_madvise, ".p...", fd, 0, 1, MADV_REMOVE),
    };
    row_by_row(rows, sizeof rows / sizeof *rows);
}

/* Pointers within what pointers lead to. */
static void inner(void) {
    for (size_t way = 0; way < WAYS; way++) {
        char *there = nowhere[way];
        struct iovec part = {there, 16};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        FAILS(EFAULT, syscall(SYS_sendmsg, pair[0], &message, 0));
        part.iov_base = buffer;
        message.msg_control = there;
        message.msg_controllen = CMSG_SPACE(sizeof(int));
        FAILS(EFAULT, syscall(SYS_sendmsg, pair[0], &message, MSG_DONTWAIT));
        message.msg_control = NULL;
        message.msg_controllen = 0;
        message.msg_iov = (struct iovec *)there;
        FAILS(EFAULT, syscall(SYS_sendmsg, pair[0], &message, 0));
        struct mmsghdr many = {.msg_hdr = message};
        FAILS(EFAULT, syscall(SYS_sendmmsg, pair[0], &many, 1, 0));
        struct iocb block = {.aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = fd, .aio_buf = (unsigned long)there, .aio_nbytes = 16};
        struct iocb *blocks[] = {(struct iocb *)there, &block};
        FAILS(EFAULT, syscall(SYS_io_submit, context, 1, blocks));
        /* Refused at once or at the end. */
        struct io_event event = {.res = -EFAULT};
        long answer = syscall(SYS_io_submit, context, 1, blocks + 1);
        int why = errno;
        CHECK(answer == 1 ? syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1 : why == EFAULT);
        CHECK((long)event.res == -EFAULT);
        char *words[] = {there, NULL};
        if (there) {
            FAILS(EFAULT, syscall(SYS_execve, "/bin/true", words, NULL));
            FAILS(EFAULT, syscall(SYS_execve, "/bin/true", NULL, words));
        }
    }
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    snprintf(file, sizeof file, "%s/file", dir);
    snprintf(fresh, sizeof fresh, "%s/new", dir);
    snprintf(below, sizeof below, "%s/dir", dir);
    snprintf(linked, sizeof linked, "%s/link", dir);
    snprintf(script, sizeof script, "%s/script", dir);
    close(file_with("script", "#!/bin/true\n"));
    fd = file_with("file", "0123456789abcdef");
    at = open(dir, O_RDONLY | O_DIRECTORY);
    NEED(symlink("file", linked) == 0 && mkdir(below, 0755) == 0 && fsetxattr(fd, "user.a", "value", 5, 0) == 0 && chmod(script, 0755) == 0);
    watches = inotify_init();
    marks = fanotify_init(FAN_CLASS_NOTIF, O_RDONLY);
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && syscall(SYS_io_setup, 4, &context) == 0);
    lock.l_type = F_WRLCK;
    signal(SIGSEGV, (void (*)(int))abort);
    signal(SIGBUS, (void (*)(int))abort);
    for (int blocked = 0; blocked < 2; blocked++) {
        sigset_t all;
        sigfillset(&all);
        NEED(!blocked || pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
        say("signals are %s\n", blocked ? "blocked" : "open");
        by_descriptor();
        by_path();
        of_the_process();
        of_memory();
        inner();
    }
    say("table: %d failures\n", failures);
    return failures != 0;
}
