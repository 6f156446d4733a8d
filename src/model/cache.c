/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding and checking a file of the cache; see cache.h for what it holds. Any thread; nothing is
 * kept. What is left out: writing (cache_write.c), listing (cache_list.c).
 */
#include "src/model/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/sha256.h"
#include "src/model/internal.h"

#define MIB               ((size_t)1 << 20)
#define SAMPLES           16
#define MAX_SECTION       (UINT64_C(1) << 30)
#define MAX_CACHE_ENTRIES (1u << 20)

static bool is_set(const char *const text)
{
    return text != NULL && text[0] != '\0';
}

ech_status ech_cache_folder(const char *const option, char ret[ECH_MODEL_PATH_MAX],
                            ech_error *const err)
{
    const char *const asked = is_set(option) ? option : getenv("ECHELON_CACHE_DIR");
    const char *const xdg = getenv("XDG_CACHE_HOME"), *const home = getenv("HOME");
    const bool has_xdg = is_set(xdg) && xdg[0] == '/'; /* relative ones don't count, says XDG */
    const bool has_home = is_set(home) && home[0] == '/';
    if (!is_set(asked) && !has_xdg && !has_home)
        return ech_fail(err, ECH_ENOTFOUND,
                        "there is no folder for packed weights: set ECHELON_CACHE_DIR, "
                        "XDG_CACHE_HOME or HOME to a path from the root");
    const char *const base = is_set(asked) ? asked : has_xdg ? xdg : home;
    const char *const tail = is_set(asked) ? "" : has_xdg ? "/echelon" : "/.cache/echelon";
    const int n = snprintf(ret, ECH_MODEL_PATH_MAX, "%s%s", base, tail);
    if (n < 0 || n >= ECH_MODEL_PATH_MAX)
        return ech_fail(err, ECH_EINVAL, "the name of the cache folder is too long: %zu bytes",
                        strlen(base) + strlen(tail));
    return ECH_OK;
}

/* ---- the key ---- */

/* Both digests of a key while they are made. */
typedef struct digests {
    ech_sha256 all, content;
    char *room; // [MIB]
} digests;

static void digest(digests *const d, const void *const bytes, const size_t len)
{
    ech_sha256_update(&d->all, bytes, len);
    ech_sha256_update(&d->content, bytes, len);
}

static ech_status digest_piece(const ech_weights *const w, const uint32_t file,
                               const uint64_t offset, const size_t len, digests *const d,
                               ech_error *const err)
{
    ECH_TRY(ech_weights_read(w, file, offset, d->room, len, err));
    const uint64_t sum = ech_checksum(d->room, len);
    digest(d, &sum, sizeof sum);
    return ECH_OK;
}

/* The first MiB, where the headers are, and a MiB of pieces spread over the rest. */
static ech_status digest_bytes(const ech_weights *const w, const uint32_t file, digests *const d,
                               ech_error *const err)
{
    const uint64_t size = w->files[file].size;
    const size_t piece = MIB / SAMPLES;
    digest(d, &size, sizeof size);
    ECH_TRY(digest_piece(w, file, 0, size < MIB ? (size_t)size : MIB, d, err));
    for (uint64_t i = 1; size > 2 * MIB && i <= SAMPLES; i++)
        ECH_TRY(digest_piece(w, file, (size - piece) / SAMPLES * i, piece, d, err));
    return ECH_OK;
}

static ech_status digest_file(const ech_weights *const w, const uint32_t file, digests *const d,
                              ech_error *const err)
{
    struct stat st;
    if (fstat(w->files[file].fd, &st) != 0)
        return ech_fail_errno(err, ECH_EIO, "looking at %s", w->files[file].path);
    const int64_t facts[] = { (int64_t)st.st_dev, (int64_t)st.st_ino, (int64_t)st.st_size,
                              st.st_mtim.tv_sec,  st.st_mtim.tv_nsec, st.st_ctim.tv_sec,
                              st.st_ctim.tv_nsec };
    ech_sha256_update(&d->all, facts, sizeof facts);
    return digest_bytes(w, file, d, err);
}

static void to_hex(ech_sha256 *const sha, char hex[65])
{
    uint8_t out[32];
    ech_sha256_final(sha, out);
    for (int i = 0; i < 32; i++)
        (void)snprintf(hex + (size_t)2 * i, 3, "%02x", out[i]);
}

ech_status ech_cache_key_make(const ech_model *const model, ech_cache_key *const ret,
                              ech_error *const err)
{
    const uint32_t head[] = { ECH_CACHE_VERSION, ECH_IMAGE_LAYOUT_VERSION,
                              (uint32_t)model->quantize, model->weights.n_files };
    digests d = { .room = malloc(MIB) };
    if (d.room == NULL) return ech_fail(err, ECH_ENOMEM, "naming packed weights: out of memory");
    ech_sha256_init(&d.all);
    ech_sha256_init(&d.content);
    digest(&d, head, sizeof head);
    ech_status rc = ECH_OK;
    for (uint32_t i = 0; i < model->weights.n_files && rc == ECH_OK; i++)
        rc = digest_file(&model->weights, i, &d, err);
    free(d.room);
    to_hex(&d.all, ret->hex);
    to_hex(&d.content, ret->content);
    return rc;
}

bool ech_cache_path(const char *const folder, const char *const hex, char ret[ECH_MODEL_PATH_MAX])
{
    const int n =
        snprintf(ret, ECH_MODEL_PATH_MAX, "%s/%.*s" ECH_CACHE_SUFFIX, folder, ECH_CACHE_NAME, hex);
    return n > 0 && n < ECH_MODEL_PATH_MAX;
}

bool ech_cache_is_name(const char *const name)
{
    return strspn(name, "0123456789abcdef") == ECH_CACHE_NAME &&
           strcmp(name + ECH_CACHE_NAME, ECH_CACHE_SUFFIX) == 0;
}

/* ---- reading ---- */

static ech_status read_at(const int fd, const char *const path, const uint64_t offset,
                          void *const to, const size_t len, ech_error *const err)
{
    for (size_t done = 0; done < len;) {
        const ssize_t n = pread(fd, (char *)to + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ech_fail_errno(err, ECH_EIO, "reading %s", path);
        if (n == 0)
            return ech_fail(err, ECH_EFORMAT, "reading %s: it ends at byte %" PRIu64, path,
                            offset + done);
        done += (size_t)n;
    }
    return ECH_OK;
}

static ech_status read_directory(const int fd, const char *const path, const uint64_t file_bytes,
                                 const ech_image_header *const h, ech_image_entry **const ret_dir,
                                 ech_error *const err)
{
    if (h->magic != ECH_IMAGE_MAGIC || h->layout_version != ECH_IMAGE_LAYOUT_VERSION)
        return ech_fail(err, ECH_EFORMAT, "reading %s: no packed weights of layout %d", path,
                        ECH_IMAGE_LAYOUT_VERSION);
    if (h->n_entries > MAX_CACHE_ENTRIES || h->dir_offset != sizeof *h ||
        h->image_bytes > file_bytes || h->image_bytes % ECH_IMAGE_ALIGN != 0)
        return ech_fail(err, ECH_EFORMAT, "reading %s: its header asks for more than is there",
                        path);
    const size_t len = sizeof *h + h->n_entries * sizeof(ech_image_entry);
    char *const head = malloc(len);
    if (head == NULL) return ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", path);
    ech_error why = { .code = ECH_OK };
    ech_status rc = read_at(fd, path, 0, head, len, err);
    /* Only header and directory are read of what is checked. */
    if (rc == ECH_OK && ech_image_check(head, file_bytes, &why) != ECH_OK)
        rc = ech_fail(err, ECH_EFORMAT, "reading %s: %s", path, why.text);
    if (rc == ECH_OK) {
        memmove(head, head + sizeof *h, len - sizeof *h);
        *ret_dir = (ech_image_entry *)(void *)head;
    } else {
        free(head);
    }
    return rc;
}

static ech_status check_tail(ech_cache_tail *const t, char *const all, const size_t len,
                             const char *const path, ech_error *const err)
{
    const uint64_t sum = t->checksum;
    memset(all + offsetof(ech_cache_tail, checksum), 0, sizeof sum);
    if (ech_checksum(all, len) != sum)
        return ech_fail(err, ECH_EFORMAT, "reading %s: the checksum of its tail is wrong", path);
    t->key[sizeof t->key - 1] = t->content[sizeof t->content - 1] = '\0';
    t->type[sizeof t->type - 1] = t->architecture[sizeof t->architecture - 1] = '\0';
    t->model[sizeof t->model - 1] = '\0';
    return ECH_OK;
}

static ech_status read_tail(const int fd, const char *const path, const uint64_t file_bytes,
                            const uint64_t image_bytes, ech_cache_tail *const t,
                            char **const ret_section, ech_error *const err)
{
    ECH_TRY(read_at(fd, path, image_bytes, t, sizeof *t, err));
    if (t->magic != ECH_CACHE_MAGIC || t->version != ECH_CACHE_VERSION ||
        t->file_bytes != file_bytes || t->section_bytes > MAX_SECTION ||
        file_bytes - image_bytes != sizeof *t + t->section_bytes)
        return ech_fail(err, ECH_EFORMAT, "reading %s: %" PRIu64 " bytes, its tail says %" PRIu64,
                        path, file_bytes, t->file_bytes);
    const size_t len = sizeof *t + t->section_bytes;
    char *const all = malloc(len);
    if (all == NULL) return ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", path);
    ech_status rc = read_at(fd, path, image_bytes, all, len, err);
    if (rc == ECH_OK) rc = check_tail(t, all, len, path, err);
    if (rc == ECH_OK) {
        memmove(all, all + sizeof *t, t->section_bytes);
        *ret_section = all;
    } else {
        free(all);
    }
    return rc;
}

ech_status ech_cache_read(const int fd, const char *const path, ech_image_header *const ret_header,
                          ech_cache_tail *const ret_tail, char **const ret_section,
                          ech_image_entry **const ret_dir, ech_error *const err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return ech_fail_errno(err, ECH_EIO, "looking at %s", path);
    if (!S_ISREG(st.st_mode)) return ech_fail(err, ECH_EFORMAT, "reading %s: no file", path);
    ECH_TRY(read_at(fd, path, 0, ret_header, sizeof *ret_header, err));
    ECH_TRY(read_directory(fd, path, (uint64_t)st.st_size, ret_header, ret_dir, err));
    const ech_status rc = read_tail(fd, path, (uint64_t)st.st_size, ret_header->image_bytes,
                                    ret_tail, ret_section, err);
    if (rc != ECH_OK) {
        free(*ret_dir);
        *ret_dir = NULL;
    }
    return rc;
}

/* The program that will run has the plan's offsets: the file must be laid out as planned. */
static bool is_as_planned(const ech_image_plan *const plan, const ech_image_entry *const entries,
                          const uint32_t n)
{
    if (n != plan->n_entries) return false;
    for (uint32_t i = 0; i < n; i++) {
        ech_image_entry e = entries[i];
        e.checksum = 0;
        if (memcmp(&e, &plan->entries[i], sizeof e) != 0) return false;
    }
    return true;
}

/* is_named: by the user, so that times and places don't count. */
static ech_status read_file(const ech_model *const model, const ech_cache_key *const key,
                            const bool is_named, ech_cache_file *const f, ech_error *const err)
{
    ech_image_header h;
    ech_cache_tail tail;
    struct stat st;
    if (fstat(f->fd, &st) != 0) return ech_fail_errno(err, ECH_EIO, "looking at %s", f->path);
    f->written = st.st_mtim; /* before anything is read of it */
    ECH_TRY(ech_cache_read(f->fd, f->path, &h, &tail, &f->section, &f->entries, err));
    f->n_entries = h.n_entries;
    f->section_bytes = tail.section_bytes;
    f->image_bytes = h.image_bytes;
    f->bytes = tail.file_bytes;
    const bool is_it =
        is_named ? strcmp(tail.content, key->content) == 0 : strcmp(tail.key, key->hex) == 0;
    if (is_it && h.image_bytes == model->layout.image_bytes &&
        is_as_planned(&model->layout.image, f->entries, f->n_entries))
        return ECH_OK;
    return ech_fail(err, ECH_EFORMAT,
                    "reading %s: it was packed from %s as %s, which is not what %s is now, as %s",
                    f->path, tail.model, tail.type, model->path,
                    ech_quantize_name(model->quantize));
}

static ech_status open_file(const ech_model *const model, const ech_cache_key *const key,
                            const bool is_named, ech_cache_file *const f, ech_error *const err)
{
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return ech_fail(err, ECH_ENOTFOUND, "there is no %s", f->path);
    if (f->fd < 0) return ech_fail_errno(err, ECH_EIO, "opening %s", f->path);
    const ech_status rc = read_file(model, key, is_named, f, err);
    if (rc != ECH_OK) {
        ech_cache_file_fini(f);
        return rc;
    }
    /* When it was used last, for `echelon cache list`; a foreign file's owner may not want that. */
    const struct timespec times[2] = { { .tv_nsec = UTIME_NOW }, { .tv_nsec = UTIME_OMIT } };
    (void)futimens(f->fd, times);
    return ECH_OK;
}

ech_status ech_cache_find(const ech_model *const model, const ech_cache_key *const key,
                          const char *const folder, ech_cache_file *const ret, ech_error *const err)
{
    *ret = (ech_cache_file){ .fd = -1 };
    if (!ech_cache_path(folder, key->hex, ret->path))
        return ech_fail(err, ECH_EINVAL, "looking for packed weights: the path is too long: %s",
                        folder);
    return open_file(model, key, false, ret, err);
}

ech_status ech_cache_open(const ech_model *const model, const ech_cache_key *const key,
                          const char *const path, ech_cache_file *const ret, ech_error *const err)
{
    *ret = (ech_cache_file){ .fd = -1 };
    (void)snprintf(ret->path, sizeof ret->path, "%s", path);
    return open_file(model, key, true, ret, err);
}

static ech_status add_copies(const ech_cache_file *const file, ech_pack_builder *const b,
                             ech_error *const err)
{
    for (uint32_t i = 0; i < file->n_entries; i++) {
        const ech_pack_source source = { .offset = file->entries[i].offset };
        ECH_TRY(ech_pack_builder_copy(b, &file->entries[i], source, err));
    }
    return ECH_OK;
}

ech_status ech_cache_program(const ech_cache_file *const file, const bool is_mapped,
                             ech_buf *const out, ech_error *const err)
{
    ech_pack_builder *b = NULL;
    void *bytes = NULL;
    size_t len = 0;
    if (ech_pack_builder_create(&b) != ECH_OK)
        return ech_fail(err, ECH_ENOMEM, "planning the load of %s: out of memory", file->path);
    ech_status rc = is_mapped ? ECH_OK : add_copies(file, b, err);
    if (rc == ECH_OK)
        rc = ech_pack_builder_finish(b, is_mapped ? 0 : 1, file->image_bytes, &bytes, &len, err);
    if (rc == ECH_OK && ech_buf_append(out, bytes, len) != ECH_OK)
        rc = ech_fail(err, ECH_ENOMEM, "planning the load of %s: out of memory", file->path);
    free(bytes);
    ech_pack_builder_destroy(&b);
    return rc;
}

ech_status ech_cache_file_check(const ech_cache_file *const file, ech_error *const err)
{
    struct stat st;
    if (fstat(file->fd, &st) != 0) return ech_fail_errno(err, ECH_EIO, "looking at %s", file->path);
    if ((uint64_t)st.st_size == file->bytes && st.st_mtim.tv_sec == file->written.tv_sec &&
        st.st_mtim.tv_nsec == file->written.tv_nsec)
        return ECH_OK;
    return ech_fail(
        err, ECH_EIO,
        "the packed weights %s were cut or written over while they were in use (%" PRIu64
        " bytes then, %lld now); start again, and replace such a file by renaming",
        file->path, file->bytes, (long long)st.st_size);
}

void ech_cache_file_fini(ech_cache_file *const file)
{
    if (file->fd >= 0) (void)close(file->fd);
    free(file->entries);
    free(file->section);
    *file = (ech_cache_file){ .fd = -1 };
}
