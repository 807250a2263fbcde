/*
 * Accesses the files of a kernel RDMA driver by every call that programs use for it, as under
 * `rdmalab exec`. Accesses other files too, where the preload library must change nothing.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define DEVICE "/dev/infiniband/uverbs0"
#define SYSFS "/sys/class/infiniband"
#define PORT SYSFS "/soft0/ports/1/"

static int failures;

#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "line %d: %s does not hold (errno %d)\n", __LINE__, #condition,   \
                    errno);                                                                   \
            failures++;                                                                       \
        }                                                                                     \
    } while (0)

static int is_device(mode_t mode, dev_t device)
{
    return S_ISCHR(mode) && device == makedev(1, 3);
}

/* The calls that UCX makes before it opens a device, and related ones. */
static void devices(void)
{
    struct stat data;
    struct statx more;
    char name[PATH_MAX];
    CHECK(stat(DEVICE, &data) == 0 && is_device(data.st_mode, data.st_rdev));
    CHECK(lstat(DEVICE, &data) == 0 && is_device(data.st_mode, data.st_rdev));
    CHECK(fstatat(AT_FDCWD, DEVICE, &data, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(data.st_mode));
    CHECK(statx(-1, DEVICE, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &more) == 0);
    CHECK(S_ISCHR(more.stx_mode) && more.stx_rdev_major == 1 && more.stx_rdev_minor == 3);
    CHECK(access(DEVICE, R_OK | W_OK) == 0);
    CHECK(euidaccess(DEVICE, R_OK | W_OK) == 0);
    CHECK(faccessat(AT_FDCWD, DEVICE, R_OK | W_OK, 0) == 0);
    CHECK(access("//dev//infiniband/uverbs1", F_OK) == 0);
    CHECK(access("/dev/infiniband/uverbs2", F_OK) == -1 && errno == ENOENT);
    CHECK(readlink(DEVICE, name, sizeof name) == -1 && errno == EINVAL);
    CHECK(readlink("/dev/infiniband/uverbs2", name, sizeof name) == -1 && errno == ENOENT);
    CHECK(realpath(DEVICE, name) == name && strcmp(name, DEVICE) == 0);
    CHECK(lgetxattr(DEVICE, "user.none", name, sizeof name) == -1 && errno != ENOENT);
    int fd = open(DEVICE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    CHECK(fd >= 0 && read(fd, name, 1) == 0 && close(fd) == 0);
    CHECK(lstat("/dev/infiniband", &data) == 0 && S_ISDIR(data.st_mode));
}

static void expect_text(const char *path, const char *expected)
{
    char text[256] = "";
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(text, sizeof text, file) == NULL || strcmp(text, expected) != 0) {
        fprintf(stderr, "%s: \"%s\" is not \"%s\" (errno %d)\n", path, text, expected, errno);
        failures++;
    }
    if (file != NULL) {
        fclose(file);
    }
}

static int count(const char *path)
{
    int found = 0;
    DIR *directory = opendir(path);
    while (directory != NULL && readdir(directory) != NULL) {
        found++;
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return found;
}

static void sysfs(void)
{
    const char *personality = getenv("RDMALAB_PERSONALITY");
    int is_ethernet = personality != NULL && strcmp(personality, "ethernet") == 0;
    char name[PATH_MAX];
    expect_text(PORT "link_layer", is_ethernet ? "Ethernet\n" : "InfiniBand\n");
    expect_text(PORT "lid", is_ethernet ? "0x0\n" : "0x1\n");
    expect_text(PORT "state", "4: ACTIVE\n");
    /* Each GID of a RoCE port has a network interface. */
    for (int i = 0; i < count(PORT "gids") - 2; i++) {
        snprintf(name, sizeof name, PORT "gid_attrs/types/%d", i);
        expect_text(name, is_ethernet ? "RoCE v2\n" : "IB/RoCE v1\n");
        snprintf(name, sizeof name, PORT "gid_attrs/ndevs/%d", i);
        if (is_ethernet) {
            expect_text(name, "lo\n");
        } else {
            CHECK(access(name, F_OK) == -1 && errno == ENOENT);
        }
    }
    CHECK(access(SYSFS "/soft0/device/net/lo/ifindex", R_OK) == (is_ethernet ? 0 : -1));
    expect_text("/sys/class/infiniband_verbs/uverbs1/ibdev", "soft1\n");
    expect_text("/sys/class/infiniband_verbs/abi_version", "6\n");
    /* The counts include "." and "..". */
    CHECK(count(SYSFS) == 4);
    CHECK(count("/dev/infiniband/") == 4);
    CHECK(count(PORT "gids") >= 3);
    struct dirent **list = NULL;
    CHECK(scandir(SYSFS, &list, NULL, alphasort) == 4 && strcmp(list[3]->d_name, "soft1") == 0);

    /* Paths relative to an open directory, and to the working directory. */
    int directory = open(SYSFS "/soft0", O_RDONLY | O_DIRECTORY);
    int file = openat(directory, "ports/1/state", O_RDONLY);
    CHECK(directory >= 0 && file >= 0 && read(file, name, 1) == 1 && name[0] == '4');
    CHECK(openat(directory, PORT "none", O_RDONLY) == -1 && errno == ENOENT);
    close(file);
    close(directory);
    CHECK(chdir(SYSFS) == 0);
    expect_text("soft0/node_type", "1: CA\n");
    CHECK(chdir("/") == 0);

    CHECK(realpath(SYSFS "/soft0/../soft1", name) == name && strcmp(name, SYSFS "/soft1") == 0);
    char *made = realpath("/sys/class/infiniband_verbs/uverbs0/device", NULL);
    CHECK(made != NULL && strcmp(made, SYSFS "/soft0/device") == 0);
    free(made);
    CHECK(readlink("/sys/class/infiniband_verbs/uverbs0/device", name, sizeof name) > 0);
    CHECK(realpath(SYSFS "/none", name) == NULL && errno == ENOENT);

    char longest[PATH_MAX + 10] = SYSFS "/";
    memset(longest + strlen(longest), 'x', PATH_MAX - strlen(longest) - 1);
    CHECK(access(longest, F_OK) == -1 && errno == ENAMETOOLONG);
}

/* Other files: the results are the kernel's, and `errno` stays untouched by calls that succeed. */
static void other_files(void)
{
    struct stat data, same;
    char name[PATH_MAX];
    errno = 77;
    CHECK(stat("/dev/null", &data) == 0 && errno == 77);
    CHECK(lstat("/proc/self/exe", &data) == 0 && S_ISLNK(data.st_mode));
    CHECK(stat("/proc/self/exe", &data) == 0 && S_ISREG(data.st_mode));
    CHECK(fstatat(AT_FDCWD, "/proc/self/exe", &data, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(S_ISLNK(data.st_mode) && errno == 77);
    CHECK(readlink("/proc/self/exe", name, sizeof name) > 0);
    CHECK(stat("/sys/class", &data) == 0 && stat("/sys/./class", &same) == 0);
    CHECK(data.st_ino == same.st_ino);
    CHECK(access("/dev/infiniband2", F_OK) == -1 && errno == ENOENT);
    CHECK(access("/dev", F_OK) == 0 && count("/dev") > 2);
    char made[] = "/tmp/rdmalab-paths-XXXXXX";
    int fd = mkstemp(made);
    CHECK(fd >= 0 && close(fd) == 0 && unlink(made) == 0);
    fd = open(made, O_CREAT | O_EXCL | O_WRONLY, 0640);
    CHECK(fd >= 0 && fstat(fd, &data) == 0 && (data.st_mode & 0777) == 0640);
    close(fd);
    CHECK(unlink(made) == 0);
    CHECK(chdir("/dev") == 0 && access("null", W_OK) == 0 && chdir("/") == 0);
}

static volatile sig_atomic_t handled;

static void handler(int number)
{
    (void) number;
    struct stat data;
    handled = stat(DEVICE, &data) == 0 && access("/dev/null", F_OK) == 0;
}

/* Result of a call in a constructor, before `main`. */
static int before_main_found;

__attribute__((constructor)) static void before_main(void)
{
    before_main_found = access(DEVICE, R_OK | W_OK) == 0;
}

/* Contexts in which the library may neither lock nor allocate. */
static void restricted_contexts(void)
{
    CHECK(before_main_found);
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    CHECK(handled);
    int status = -1;
    pid_t child = vfork();
    if (child == 0) {
        _exit(access(DEVICE, R_OK | W_OK) == 0 && access("/dev/null", R_OK) == 0 ? 0 : 1);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    /* A program that cleared its environment. */
    clearenv();
    CHECK(access(DEVICE, R_OK | W_OK) == 0);
}

int main(void)
{
    devices();
    sysfs();
    other_files();
    restricted_contexts();
    if (failures != 0) {
        return 1;
    }
    puts("all passed");
    return 0;
}
