/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are written beside their place: whole or as before, with names that are in the way. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/os/fault.h"
#include "src/base/os/newfile.h"
#include "tests/unit/test.h"

static char folder[32], path[64];
static ech_error err;

static int make_folder(void **state)
{
    (void)state;
    ech_fault_arm(ECH_FAULT_TMPFILE, 0, 0);
    (void)snprintf(folder, sizeof folder, "/tmp/echelon-XXXXXX");
    if (mkdtemp(folder) == NULL) return 1;
    (void)snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static unsigned n_names(void)
{
    unsigned n = 0;
    DIR *const dir = opendir(folder);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static int remove_folder(void **state)
{
    (void)state;
    ech_fault_arm(ECH_FAULT_TMPFILE, 0, 0);
    (void)unlink(path);
    return rmdir(folder);
}

static void write_text(const ech_new_file *f, const char *text)
{
    assert_int_equal(write(f->fd, text, strlen(text)), strlen(text));
}

static void has_text(const char *text)
{
    char got[64] = { 0 };
    FILE *const f = fopen(path, "r");
    assert_non_null(f);
    (void)fread(got, 1, sizeof got - 1, f);
    (void)fclose(f);
    assert_string_equal(got, text);
}

static void make(const char *text)
{
    ech_new_file f;
    assert_int_equal(ech_new_file_open(&f, path, 0600, &err), ECH_OK);
    write_text(&f, text);
    assert_int_equal(ech_new_file_keep(&f, &err), ECH_OK);
    ech_new_file_fini(&f);
}

/* With and without files that have no name. */
static void it_is_there_when_it_is_kept(void **state)
{
    (void)state;
    for (int named = 0; named < 2; named++) {
        ech_new_file f;
        ech_fault_arm(ECH_FAULT_TMPFILE, 0, named ? UINT64_MAX : 0);
        make("one");
        has_text("one");
        assert_int_equal(ech_new_file_open(&f, path, 0600, &err), ECH_OK);
        write_text(&f, "half");
        has_text("one");
        ech_new_file_fini(&f);
        ech_new_file_fini(&f);
        has_text("one");
        make("two");
        has_text("two");
        assert_int_equal(n_names(), 1);
        assert_int_equal(unlink(path), 0);
    }
}

static void a_killed_one_leaves_nothing(void **state)
{
    (void)state;
    const pid_t pid = fork();
    if (pid == 0) {
        ech_new_file f;
        (void)ech_new_file_open(&f, path, 0600, NULL);
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(n_names(), 0);
}

static void refused(const char *where, int code, const char *why)
{
    ech_new_file f;
    err = (ech_error){ 0 };
    assert_int_equal(ech_new_file_open(&f, where, 0600, &err), code);
    if (strstr(err.text, why) == NULL) fail_msg("%s: '%s'", where, err.text);
    if (where[0] != '\0') assert_non_null(strstr(err.text, where));
    assert_int_equal(ech_new_file_try(where, NULL), code);
    ech_new_file_fini(&f);
}

static void a_place_that_is_none_is_refused(void **state)
{
    (void)state;
    char pipe_path[64], link_path[64], in_file[80];
    (void)snprintf(pipe_path, sizeof pipe_path, "%s/p", folder);
    (void)snprintf(link_path, sizeof link_path, "%s/l", folder);
    (void)snprintf(in_file, sizeof in_file, "%s/below", path);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_int_equal(symlink("/dev/null", link_path), 0);
    refused(folder, ECH_EINVAL, "it is a folder");
    refused("/dev/full", ECH_EINVAL, "no regular file"); /* or it would be one, for everybody */
    refused("/dev/null", ECH_EINVAL, "no regular file");
    refused(pipe_path, ECH_EINVAL, "no regular file");
    refused(link_path, ECH_EINVAL, "no regular file");
    refused("", ECH_EINVAL, "empty");
    refused("/nowhere/file", ECH_EIO, "No such file");
    make("x");
    refused(in_file, ECH_EIO, "Not a directory");
    struct stat st;
    assert_int_equal(stat("/dev/null", &st), 0);
    assert_true(S_ISCHR(st.st_mode));
    (void)unlink(pipe_path);
    (void)unlink(link_path);
}

/* A folder that came after the opening is not replaced either, and nothing is left beside it. */
static void a_place_that_is_taken_later_is_refused(void **state)
{
    (void)state;
    for (int named = 0; named < 2; named++) {
        ech_new_file f;
        ech_fault_arm(ECH_FAULT_TMPFILE, 0, named ? UINT64_MAX : 0);
        assert_int_equal(ech_new_file_open(&f, path, 0600, &err), ECH_OK);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_int_equal(ech_new_file_keep(&f, &err), ECH_EINVAL);
        ech_new_file_fini(&f);
        assert_int_equal(n_names(), 1);
        assert_int_equal(rmdir(path), 0);
    }
}

/* As long as a name may be, though what is beside it may not; and longer: at once. */
static void names_may_be_long(void **state)
{
    (void)state;
    const size_t at = strlen(folder) + 1;
    for (int named = 0; named < 2; named++) {
        char name[400], *const end = name + at;
        (void)snprintf(name, sizeof name, "%s/", folder);
        for (size_t len = 200; len <= 300; len++) {
            ech_new_file f;
            memset(end, 'n', len);
            end[len] = '\0';
            ech_fault_arm(ECH_FAULT_TMPFILE, 0, named ? UINT64_MAX : 0);
            const ech_status rc = ech_new_file_open(&f, name, 0600, &err);
            assert_int_equal(rc, len <= 255 ? ECH_OK : ECH_EINVAL);
            if (rc == ECH_OK) assert_int_equal(ech_new_file_keep(&f, &err), ECH_OK);
            assert_int_equal(n_names(), len <= 255 ? 1 : 0);
            ech_new_file_fini(&f);
            (void)unlink(name);
        }
    }
}

static void space_that_is_not_there_is_said(void **state)
{
    (void)state;
    ech_new_file f;
    assert_int_equal(ech_new_file_open(&f, path, 0600, &err), ECH_OK);
    assert_int_equal(ech_new_file_take(&f, 1 << 20, &err), ECH_OK);
    assert_int_equal(ech_new_file_take(&f, UINT64_C(1) << 60, &err), ECH_EIO);
    assert_non_null(strstr(err.text, path));
    ech_new_file_fini(&f);
    assert_int_equal(n_names(), 0);
}

static void *keep_many(void *unused)
{
    (void)unused;
    intptr_t failed = 0;
    for (int i = 0; i < 300; i++) {
        ech_new_file f;
        if (ech_new_file_open(&f, path, 0600, NULL) != ECH_OK) return (void *)-1;
        failed += write(f.fd, "text", 4) != 4 || ech_new_file_keep(&f, NULL) != ECH_OK;
        ech_new_file_fini(&f);
    }
    return (void *)failed;
}

/* Each is whole whoever is last, and nobody takes another's away. */
static void many_keep_the_same_path(void **state)
{
    (void)state;
    pthread_t threads[4];
    void *failed;
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_many, NULL), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_int_equal((intptr_t)failed, 0);
    }
    has_text("text");
    assert_int_equal(n_names(), 1);
}

static void a_name_needs_no_folder(void **state)
{
    (void)state;
    char here[256];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(folder), 0);
    ech_new_file f;
    assert_int_equal(ech_new_file_open(&f, "file", 0600, &err), ECH_OK);
    assert_int_equal(ech_new_file_keep(&f, &err), ECH_OK);
    ech_new_file_fini(&f);
    assert_int_equal(chdir(here), 0);
    has_text("");
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(it_is_there_when_it_is_kept),
        T(a_killed_one_leaves_nothing),
        T(a_place_that_is_none_is_refused),
        T(a_place_that_is_taken_later_is_refused),
        T(names_may_be_long),
        T(space_that_is_not_there_is_said),
        T(many_keep_the_same_path),
        T(a_name_needs_no_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
