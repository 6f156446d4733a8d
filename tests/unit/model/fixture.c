/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/model/fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fixture_open(fixture *const f)
{
    const char *const tmp = getenv("TMPDIR");
    (void)snprintf(f->folder, sizeof f->folder, "%s/echelon-model-XXXXXX",
                   tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(f->folder));
}

const char *fixture_path(const fixture *const f, const char *const name)
{
    static char ring[8][1024];
    static unsigned at;
    char *const path = ring[at++ % 8];
    (void)snprintf(path, sizeof ring[0], "%s/%s", f->folder, name);
    return path;
}

void fixture_close(fixture *const f)
{
    DIR *const dir = opendir(f->folder);
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] != '.') (void)unlink(fixture_path(f, e->d_name));
    }
    (void)closedir(dir);
    assert_int_equal(rmdir(f->folder), 0);
}

void fixture_write(const fixture *const f, const char *const name, const void *const bytes,
                   const size_t len)
{
    FILE *const file = fopen(fixture_path(f, name), "wb");
    assert_non_null(file);
    if (len > 0) assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

void fixture_puts(const fixture *const f, const char *const name, const char *const text)
{
    fixture_write(f, name, text, strlen(text));
}

ech_buf fixture_read(const char *const path)
{
    ech_buf b = { 0 };
    assert_int_equal(ech_buf_read_file(&b, path, SIZE_MAX / 4, NULL), ECH_OK);
    return b;
}

void fixture_copy(const fixture *const f, const char *const from)
{
    DIR *const dir = opendir(from);
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        char path[1024];
        (void)snprintf(path, sizeof path, "%s/%s", from, e->d_name);
        ech_buf b = fixture_read(path);
        fixture_write(f, e->d_name, b.data, b.len);
        ech_buf_fini(&b);
    }
    (void)closedir(dir);
}

void fixture_replace(const fixture *const f, const char *const name, const char *const old,
                     const char *const with)
{
    ech_buf b = fixture_read(fixture_path(f, name));
    const char *const at = memmem(b.data, b.len, old, strlen(old));
    assert_non_null(at);
    const size_t before = (size_t)(at - b.data);
    ech_buf out = { 0 };
    assert_int_equal(ech_buf_append(&out, b.data, before), ECH_OK);
    assert_int_equal(ech_buf_puts(&out, with), ECH_OK);
    assert_int_equal(ech_buf_append(&out, at + strlen(old), b.len - before - strlen(old)), ECH_OK);
    fixture_write(f, name, out.data, out.len);
    ech_buf_fini(&b);
    ech_buf_fini(&out);
}

void fixture_safetensors(const fixture *const f, const char *const name, const char *const header,
                         const size_t n_data)
{
    ech_buf b = { 0 };
    const uint64_t len = strlen(header);
    unsigned char le[8];
    for (int i = 0; i < 8; i++) {
        le[i] = (unsigned char)(len >> (8 * i));
    }
    assert_int_equal(ech_buf_append(&b, le, sizeof le), ECH_OK);
    assert_int_equal(ech_buf_puts(&b, header), ECH_OK);
    assert_int_equal(ech_buf_reserve(&b, n_data), ECH_OK);
    memset(b.data + b.len, 0, n_data);
    fixture_write(f, name, b.data, b.len + n_data);
    ech_buf_fini(&b);
}
