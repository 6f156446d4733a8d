/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of packed weights: one file per model and quantisation, written after the first load.
 *
 *     [0, image_bytes)            the packed image (src/chip/image.h), entries with checksums
 *     [image_bytes, file_bytes)   tail: what it was made of, then a section that the caller owns:
 *                                 the engine keeps a tokenizer's tables there
 *
 * A file's name is the beginning of its key, its tail holds all of it. The key is a digest of the
 * layout version, the quantisation and, per source file, device, inode, size, mtime and ctime, the
 * first MiB and a MiB of samples. A file is only ever renamed into its place or unlinked, so a
 * reader that has it mapped keeps what it has. One writer at a time per folder, under a lock.
 *
 * Bytes of a cache file are input: header, directory, sizes and tail are checked when it is found;
 * the entries' checksums by whoever reads the entries (`copy` does, a mapping doesn't).
 */
#ifndef ECH_MODEL_CACHE_H
#define ECH_MODEL_CACHE_H

#include <time.h>

#include "src/chip/image.h"
#include "src/model/model.h"

#define ECH_CACHE_MAGIC   UINT64_C(0x454843414348beef)
#define ECH_CACHE_VERSION 2
#define ECH_CACHE_SUFFIX  ".echelon"
#define ECH_CACHE_NAME    40 /* hex digits of the key in a file's name */

typedef struct ech_cache_key {
    char hex[65];
    char content[65]; /* the same without device, inode and times: it moves with the files */
} ech_cache_key;

/* Part of the file's format. Written and read in memory order: a file is for its machine. */
typedef struct ech_cache_tail {
    uint64_t magic;
    uint32_t version;
    uint32_t reserved;
    uint64_t file_bytes;
    uint64_t checksum; /* of the tail and its section, this field 0 */
    uint64_t source_bytes;
    int64_t created_s;
    uint64_t section_bytes;
    char key[72];
    char content[72];
    char type[16]; /* --quantize as it was asked for */
    char architecture[32];
    char model[ECH_MODEL_PATH_MAX]; /* path of the model that was packed */
} ech_cache_tail;

_Static_assert(sizeof(ech_cache_tail) == 56 + 72 + 72 + 16 + 32 + 4096, "part of the file format");

/* A file that was found and checked. */
typedef struct ech_cache_file {
    int fd;
    uint64_t bytes;
    struct timespec written; /* its time when it was checked */
    uint64_t image_bytes;
    char path[ECH_MODEL_PATH_MAX];
    ech_image_entry *entries; // [n_entries] the directory, checksums included
    uint32_t n_entries;
    char *section; // [section_bytes]
    size_t section_bytes;
} ech_cache_file;

/*
 * The folder: `option` if it isn't NULL or "", else the environment's ECHELON_CACHE_DIR, else
 * $XDG_CACHE_HOME/echelon, else ~/.cache/echelon. ENOTFOUND when there is no home either.
 */
ech_status ech_cache_folder(const char *option, char ret[ECH_MODEL_PATH_MAX], ech_error *err);

/* Of a model whose sources are open. Reads about 2 MiB of each file. */
ech_status ech_cache_key_make(const ech_model *model, ech_cache_key *ret, ech_error *err);

/*
 * The file of that key. ENOTFOUND: there is none. EFORMAT: it is damaged, or of another program;
 * the text says what is wrong. On success *ret is the caller's, for ech_cache_file_fini().
 */
ech_status ech_cache_find(const ech_model *model, const ech_cache_key *key, const char *folder,
                          ech_cache_file *ret, ech_error *err);
/* A file that the user names (ech_cache_write_file): the key's `content` must be its own. */
ech_status ech_cache_open(const ech_model *model, const ech_cache_key *key, const char *path,
                          ech_cache_file *ret, ech_error *err);
/* EIO when it was cut or written over since then: what is mapped isn't what was checked. */
ech_status ech_cache_file_check(const ech_cache_file *file, ech_error *err);
void ech_cache_file_fini(ech_cache_file *file);

/*
 * The program, of kind `pack`, that brings a found file's weights into use, appended to out.
 * Mapped: one tensor, the file, which the program enters; else two, the file and the image it is
 * copied to, whose directory was written by ech_model_image_begin().
 */
ech_status ech_cache_program(const ech_cache_file *file, bool is_mapped, ech_buf *out,
                             ech_error *err);

/* What is written. */
typedef struct ech_cache_content {
    const ech_model *model;
    const ech_cache_key *key;
    const void *image; /* packed and complete */
    const void *section;
    size_t section_bytes;
    /* Asked now and then; true gives the writing up. May be NULL. */
    bool (*stop)(void *stop_ctx);
    void *stop_ctx;
} ech_cache_content;

/*
 * Writes the cache file of that content, unless a good one is there by now; other files of the same
 * model and quantisation go. Waits for another process that writes. Makes the folder.
 * ECANCELLED: stop said so. Everything else: the file could not be written, and nothing is left of
 * it. Must run on a thread that has SIGXFSZ blocked.
 */
ech_status ech_cache_write(const ech_cache_content *c, const char *folder, ech_error *err);
/* The same to a path that the user chose, replacing what is there. */
ech_status ech_cache_write_file(const ech_cache_content *c, const char *path, ech_error *err);
/*
 * Before a model is packed for nothing: whether these two could write it, with space for its
 * weights. Nothing is left of the attempt but the folder.
 */
ech_status ech_cache_try(const ech_model *model, const ech_cache_key *key, const char *folder,
                         ech_error *err);
ech_status ech_cache_try_file(const ech_model *model, const char *path, ech_error *err);

/* ---- shared by the files of the cache ---- */

/* folder/name.echelon; false when that is too long. */
bool ech_cache_path(const char *folder, const char *hex, char ret[ECH_MODEL_PATH_MAX]);
/* Whether a file's name is one that the cache gives. */
bool ech_cache_is_name(const char *name);
/* Reads and checks header, directory and tail. *ret_dir is a malloc; section is left alone. */
ech_status ech_cache_read(int fd, const char *path, ech_image_header *ret_header,
                          ech_cache_tail *ret_tail, char **ret_section, ech_image_entry **ret_dir,
                          ech_error *err);
/* Removes the cache's files that a model and type have beside `keep`. */
void ech_cache_remove_stale(const char *folder, const ech_cache_tail *like, const char *keep);

#endif
