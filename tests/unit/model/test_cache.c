/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of packed weights: what is written is found, and means the same bits; whatever happens
 * to file, folder or disk is seen, and nothing half-written is left.
 */
#include "src/model/cache.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/model/fixture.h"
#include "tests/unit/model/runner.h"

typedef struct world {
    fixture model, cache;
    runner r;
    ech_model *m; /* the runner's has given its files back */
    ech_cache_key key;
    ech_cache_content content;
} world;

static int open_world(void **state)
{
    world *const w = calloc(1, sizeof *w);
    ech_error err;
    fixture_open(&w->model);
    fixture_open(&w->cache);
    fixture_copy(&w->model, GOLDEN "/qwen3/gqa-tied-bf16");
    const runner_options o = {
        .quantize = ECH_QUANTIZE_Q8, .n_threads = 2, .max_rows = 1, .max_positions = 32, .n_seqs = 1
    };
    assert_int_equal(runner_open(&w->r, w->model.folder, &o), ECH_OK);
    const ech_model_options mo = { .struct_size = sizeof mo, .quantize = ECH_QUANTIZE_Q8 };
    assert_int_equal(ech_model_open_with(&w->m, w->model.folder, &mo, &err), ECH_OK);
    assert_int_equal(ech_cache_key_make(w->m, &w->key, &err), ECH_OK);
    w->content = (ech_cache_content){
        .model = w->m, .key = &w->key, .image = w->r.image, .section = "words", .section_bytes = 5
    };
    *state = w;
    return 0;
}

static int close_world(void **state)
{
    world *const w = *state;
    size_t n = 0;
    uint64_t bytes = 0;
    ech_error err;
    (void)chmod(w->cache.folder, 0700);
    assert_int_equal(ech_cache_clear(w->cache.folder, &n, &bytes, &err), ECH_OK);
    runner_close(&w->r);
    ech_model_close(&w->m);
    fixture_close(&w->model);
    fixture_close(&w->cache); /* fails when anything was left */
    free(w);
    return 0;
}

static void write_it(world *const w)
{
    ech_error err = { 0 };
    if (ech_cache_write(&w->content, w->cache.folder, &err) != ECH_OK) fail_msg("%s", err.text);
}

static ech_cache_file find_it(world *const w)
{
    ech_cache_file f;
    ech_error err = { 0 };
    if (ech_cache_find(w->r.model, &w->key, w->cache.folder, &f, &err) != ECH_OK)
        fail_msg("%s", err.text);
    return f;
}

static size_t n_files(const world *const w)
{
    ech_cache_entry *list = NULL;
    size_t n = 0;
    ech_error err;
    assert_int_equal(ech_cache_list(w->cache.folder, &list, &n, &err), ECH_OK);
    free(list);
    return n;
}

static void expect_status(world *const w, const ech_status want)
{
    ech_cache_file f;
    ech_error err = { 0 };
    const ech_status rc = ech_cache_find(w->r.model, &w->key, w->cache.folder, &f, &err);
    if (rc != want)
        fail_msg("%s: %s instead of %s", err.text, ech_status_name(rc), ech_status_name(want));
    if (rc == ECH_OK) ech_cache_file_fini(&f);
}

/* Every entry's bytes of the file are those of the image packed just now. */
static void same_entries(const world *const w, const char *const image)
{
    uint32_t n = 0;
    const ech_image_entry *const entries = ech_image_entries(w->r.image, &n);
    for (uint32_t i = 0; i < n; i++)
        assert_memory_equal(image + entries[i].offset, w->r.image + entries[i].offset,
                            entries[i].bytes);
}

static void what_is_written_is_found(void **state)
{
    world *const w = *state;
    expect_status(w, ECH_ENOTFOUND);
    write_it(w);
    ech_cache_file f = find_it(w);
    assert_int_equal(f.section_bytes, 5);
    assert_memory_equal(f.section, "words", 5);
    char *const all = mmap(NULL, f.bytes, PROT_READ, MAP_SHARED, f.fd, 0);
    assert_ptr_not_equal(all, MAP_FAILED);
    ech_error err;
    assert_int_equal(ech_image_verify(all, f.bytes, &err), ECH_OK);
    same_entries(w, all);
    (void)munmap(all, f.bytes);
    ech_cache_file_fini(&f);
}

/* Runs the program that copies a found file into an image of zeros. */
static ech_status copy_to(world *const w, ech_cache_file *const f, char *const image,
                          ech_error *const err)
{
    ech_buf program = { 0 };
    char *const all = mmap(NULL, f->bytes, PROT_READ, MAP_SHARED, f->fd, 0);
    assert_int_equal(ech_cache_program(f, false, &program, err), ECH_OK);
    assert_int_equal(ech_exec_load(w->r.exec, program.data, program.len, err), ECH_OK);
    const ech_exec_tensor tensors[2] = { { all, f->bytes }, { image, f->image_bytes } };
    const ech_exec_args args = { .tensors = tensors, .n_tensors = 2 };
    const ech_status rc = ech_exec_run(w->r.exec, program.data, program.len, &args, err);
    ech_buf_fini(&program);
    (void)munmap(all, f->bytes);
    return rc;
}

static void a_copy_is_the_image_to_the_bit(void **state)
{
    world *const w = *state;
    ech_error err = { 0 };
    write_it(w);
    ech_cache_file f = find_it(w);
    char *const image = aligned_alloc(4096, f.image_bytes);
    memset(image, 0, f.image_bytes);
    ech_model_image_begin(w->r.model, image);
    assert_int_equal(copy_to(w, &f, image, &err), ECH_OK);
    assert_memory_equal(image, w->r.image, f.image_bytes);
    free(image);
    ech_cache_file_fini(&f);
}

static void a_mapped_file_can_be_entered(void **state)
{
    world *const w = *state;
    ech_error err = { 0 };
    ech_buf program = { 0 };
    write_it(w);
    ech_cache_file f = find_it(w);
    char *const all = mmap(NULL, f.bytes, PROT_READ, MAP_SHARED, f.fd, 0);
    assert_int_equal(ech_cache_program(&f, true, &program, &err), ECH_OK);
    assert_int_equal(ech_exec_load(w->r.exec, program.data, program.len, &err), ECH_OK);
    const ech_exec_tensor tensor = { all, f.bytes };
    const ech_exec_args args = { .tensors = &tensor, .n_tensors = 1 };
    assert_int_equal(ech_exec_run(w->r.exec, program.data, program.len, &args, &err), ECH_OK);
    ech_buf_fini(&program);
    (void)munmap(all, f.bytes);
    ech_cache_file_fini(&f);
}

static void flip(const char *const path, const uint64_t at)
{
    const int fd = open(path, O_RDWR);
    uint8_t byte = 0;
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    (void)close(fd);
}

static void damage_is_found(void **state)
{
    world *const w = *state;
    ech_error err = { 0 };
    write_it(w);
    ech_cache_file f = find_it(w);
    const uint64_t places[] = { 0,
                                9,
                                13,
                                17,
                                33,
                                70,
                                300,
                                f.image_bytes + 1,
                                f.image_bytes + 20,
                                f.image_bytes + 100,
                                f.bytes - 1 };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        flip(f.path, places[i]);
        expect_status(w, ECH_EFORMAT);
        flip(f.path, places[i]);
    }
    /* A weight's bit: what copies it sees it. */
    char *const image = aligned_alloc(4096, f.image_bytes);
    flip(f.path, f.entries[f.n_entries / 2].offset + 5);
    expect_status(w, ECH_OK);
    assert_int_equal(copy_to(w, &f, image, &err), ECH_EFORMAT);
    free(image);
    ech_cache_file_fini(&f);
}

static void a_cut_file_is_found_and_written_again(void **state)
{
    world *const w = *state;
    write_it(w);
    ech_cache_file f = find_it(w);
    const uint64_t sizes[] = { f.bytes - 1, f.image_bytes, f.image_bytes / 2, 64, 7, 0 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(truncate(f.path, (off_t)sizes[i]), 0);
        expect_status(w, ECH_EFORMAT);
    }
    write_it(w);
    expect_status(w, ECH_OK);
    ech_cache_file_fini(&f);
}

/* A file with other content under the right name. */
static void a_foreign_file_is_not_used(void **state)
{
    world *const w = *state;
    char path[ECH_MODEL_PATH_MAX];
    ech_cache_key other = w->key;
    other.hex[60] ^= 1; /* the same name, another key */
    w->content.key = &other;
    write_it(w);
    expect_status(w, ECH_EFORMAT);
    assert_true(ech_cache_path(w->cache.folder, w->key.hex, path));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    expect_status(w, ECH_EFORMAT);
    assert_int_equal(rmdir(path), 0);
}

static void a_touched_source_is_another_model(void **state)
{
    world *const w = *state;
    ech_error err;
    ech_cache_key now;
    const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 1000 } };
    write_it(w);
    assert_int_equal(utimensat(AT_FDCWD, fixture_path(&w->model, "model.safetensors"), times, 0),
                     0);
    assert_int_equal(ech_cache_key_make(w->m, &now, &err), ECH_OK);
    assert_string_not_equal(now.hex, w->key.hex);
    assert_string_equal(now.content, w->key.content);
    /* Its file takes the older one's place. */
    w->key = now;
    write_it(w);
    assert_int_equal(n_files(w), 1);
    expect_status(w, ECH_OK);
}

static void a_replaced_file_stays_for_who_has_it_mapped(void **state)
{
    world *const w = *state;
    ech_error err;
    write_it(w);
    ech_cache_file f = find_it(w);
    char *const all = mmap(NULL, f.bytes, PROT_READ, MAP_SHARED, f.fd, 0);
    w->content.section = "other";
    assert_int_equal(ech_cache_write_file(&w->content, f.path, &err), ECH_OK);
    same_entries(w, all);
    assert_memory_equal(all + f.bytes - 5, "words", 5);
    (void)munmap(all, f.bytes);
    ech_cache_file_fini(&f);
}

static void a_folder_that_cant_be_written_is_an_error(void **state)
{
    world *const w = *state;
    ech_error err = { 0 };
    if (geteuid() != 0) { /* root writes everywhere */
        assert_int_equal(chmod(w->cache.folder, 0500), 0);
        assert_int_equal(ech_cache_write(&w->content, w->cache.folder, &err), ECH_EIO);
        assert_int_equal(chmod(w->cache.folder, 0700), 0);
    }
    fixture_puts(&w->cache, "file", "in the way");
    assert_int_equal(ech_cache_write(&w->content, fixture_path(&w->cache, "file"), &err), ECH_EIO);
    assert_int_equal(ech_cache_write(&w->content, "/proc/self/none", &err), ECH_EIO);
    assert_int_equal(n_files(w), 0);
}

static void a_disk_that_is_full_is_an_error(void **state)
{
    world *const w = *state;
    ech_error err = { 0 };
    struct rlimit old;
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGXFSZ);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    const struct rlimit small = { .rlim_cur = 100000, .rlim_max = old.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const ech_status rc = ech_cache_write(&w->content, w->cache.folder, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(rc, ECH_EIO);
    assert_int_equal(n_files(w), 0);
}

static bool stop_later(void *ctx)
{
    return ++*(int *)ctx > 5;
}

static void writing_can_be_given_up(void **state)
{
    world *const w = *state;
    ech_error err;
    int n = 0;
    w->content.stop = stop_later;
    w->content.stop_ctx = &n;
    assert_int_equal(ech_cache_write(&w->content, w->cache.folder, &err), ECH_ECANCELLED);
    assert_int_equal(n_files(w), 0);
}

static void *write_main(void *arg)
{
    ech_error err;
    world *const w = arg;
    return (void *)(intptr_t)ech_cache_write(&w->content, w->cache.folder, &err);
}

static void two_first_loads_write_one_file(void **state)
{
    world *const w = *state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_main, w), 0);
    for (int i = 0; i < 4; i++) {
        void *rc = NULL;
        (void)pthread_join(threads[i], &rc);
        assert_int_equal((intptr_t)rc, ECH_OK);
    }
    assert_int_equal(n_files(w), 1);
    expect_status(w, ECH_OK);
}

static void what_a_killed_writer_left_goes(void **state)
{
    world *const w = *state;
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s" ECH_CACHE_SUFFIX ".tmp", ECH_CACHE_NAME,
                   "00112233445566778899aabbccddeeff0011223344");
    fixture_puts(&w->cache, name, "half");
    assert_int_equal(n_files(w), 1);
    write_it(w);
    assert_int_equal(n_files(w), 1);
    expect_status(w, ECH_OK);
}

static void clearing_leaves_what_isnt_the_caches(void **state)
{
    world *const w = *state;
    ech_error err;
    size_t n = 0;
    uint64_t bytes = 0;
    fixture_puts(&w->cache, "mine.echelon", "not a cache's name");
    write_it(w);
    assert_int_equal(ech_cache_clear(w->cache.folder, &n, &bytes, &err), ECH_OK);
    assert_int_equal(n, 1);
    assert_true(bytes > w->r.image_bytes);
    assert_int_equal(access(fixture_path(&w->cache, "mine.echelon"), F_OK), 0);
    assert_int_equal(ech_cache_clear("/nonexistent/echelon", &n, &bytes, &err), ECH_OK);
    assert_int_equal(n, 0);
}

static void a_named_file_moves_with_its_model(void **state)
{
    world *const w = *state;
    ech_error err = { 0 };
    ech_cache_file f;
    ech_cache_key moved = w->key;
    const char *const path = fixture_path(&w->cache, "named");
    memset(moved.hex, '0', 64);
    assert_int_equal(ech_cache_write_file(&w->content, path, &err), ECH_OK);
    assert_int_equal(ech_cache_open(w->r.model, &moved, path, &f, &err), ECH_OK);
    ech_cache_file_fini(&f);
    moved.content[0] ^= 1;
    assert_int_equal(ech_cache_open(w->r.model, &moved, path, &f, &err), ECH_EFORMAT);
}

static void the_folder_follows_option_and_environment(void **state)
{
    (void)state;
    char path[ECH_MODEL_PATH_MAX];
    ech_error err;
    char *const home = strdup(getenv("HOME") != NULL ? getenv("HOME") : "");
    char *const dir =
        getenv("ECHELON_CACHE_DIR") != NULL ? strdup(getenv("ECHELON_CACHE_DIR")) : NULL;
    (void)setenv("HOME", "/h", 1);
    (void)setenv("XDG_CACHE_HOME", "relative", 1);
    (void)unsetenv("ECHELON_CACHE_DIR");
    assert_int_equal(ech_cache_folder(NULL, path, &err), ECH_OK);
    assert_string_equal(path, "/h/.cache/echelon");
    (void)setenv("XDG_CACHE_HOME", "/x", 1);
    assert_int_equal(ech_cache_folder("", path, &err), ECH_OK);
    assert_string_equal(path, "/x/echelon");
    (void)setenv("ECHELON_CACHE_DIR", "e", 1);
    assert_int_equal(ech_cache_folder(NULL, path, &err), ECH_OK);
    assert_string_equal(path, "e");
    assert_int_equal(ech_cache_folder("/o", path, &err), ECH_OK);
    assert_string_equal(path, "/o");
    (void)unsetenv("ECHELON_CACHE_DIR");
    (void)unsetenv("XDG_CACHE_HOME");
    (void)unsetenv("HOME");
    assert_int_equal(ech_cache_folder(NULL, path, &err), ECH_ENOTFOUND);
    (void)setenv("HOME", home, 1);
    if (dir != NULL) (void)setenv("ECHELON_CACHE_DIR", dir, 1);
    free(home);
    free(dir);
}

#define WORLD_TEST(f) cmocka_unit_test_setup_teardown(f, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(what_is_written_is_found),
        WORLD_TEST(a_copy_is_the_image_to_the_bit),
        WORLD_TEST(a_mapped_file_can_be_entered),
        WORLD_TEST(damage_is_found),
        WORLD_TEST(a_cut_file_is_found_and_written_again),
        WORLD_TEST(a_foreign_file_is_not_used),
        WORLD_TEST(a_touched_source_is_another_model),
        WORLD_TEST(a_replaced_file_stays_for_who_has_it_mapped),
        WORLD_TEST(a_folder_that_cant_be_written_is_an_error),
        WORLD_TEST(a_disk_that_is_full_is_an_error),
        WORLD_TEST(writing_can_be_given_up),
        WORLD_TEST(two_first_loads_write_one_file),
        WORLD_TEST(what_a_killed_writer_left_goes),
        WORLD_TEST(clearing_leaves_what_isnt_the_caches),
        WORLD_TEST(a_named_file_moves_with_its_model),
        cmocka_unit_test(the_folder_follows_option_and_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
