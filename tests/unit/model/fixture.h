/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model files that tests make, change and break: a folder under the temporary directory, gone at
 * the end. Every call asserts that it worked.
 */
#ifndef ECH_TESTS_UNIT_MODEL_FIXTURE_H
#define ECH_TESTS_UNIT_MODEL_FIXTURE_H

#include "src/base/buf.h"
#include "tests/unit/test.h"

#define GOLDEN ECH_SOURCE_DIR "/tests/golden"

typedef struct fixture {
    char folder[256];
} fixture;

void fixture_open(fixture *f);
/* Removes the folder with its files; it has no folders in it. */
void fixture_close(fixture *f);
/* folder/name, in a static ring of strings: good for the next few calls. */
const char *fixture_path(const fixture *f, const char *name);
void fixture_write(const fixture *f, const char *name, const void *bytes, size_t len);
void fixture_puts(const fixture *f, const char *name, const char *text);
/* Reads a file; the caller frees with ech_buf_fini. */
ech_buf fixture_read(const char *path);
/* Copies every file of a folder. */
void fixture_copy(const fixture *f, const char *from);
/* Replaces the first occurrence of a text in a file by another. */
void fixture_replace(const fixture *f, const char *name, const char *old, const char *with);
/* A safetensors file: 8 bytes of length, header, then n_data zeros. */
void fixture_safetensors(const fixture *f, const char *name, const char *header, size_t n_data);

#endif
