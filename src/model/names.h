/* SPDX-License-Identifier: Apache-2.0 */
/* Names and paths that come out of model files, before they are used or printed. */
#ifndef ECH_MODEL_NAMES_H
#define ECH_MODEL_NAMES_H

#include "echelon/status.h"

/* Bytes that a tensor's or file's name may have. */
#define ECH_NAME_MAX 256

/* Not empty, not over ECH_NAME_MAX, no control characters: it may stand in one line of text. */
bool ech_name_is_plain(const char *name);
/* Plain, and a file of the same folder: no slash, not "." or "..". */
bool ech_name_is_file(const char *name);
/*
 * folder "/" name, as a new string for free(). NULL when out of memory. With name NULL a copy of
 * folder.
 */
char *ech_path_join(const char *folder, const char *name);
/* The folder part of a path, "." when it has none, as a new string for free(). */
char *ech_path_folder(const char *path);
bool ech_path_exists(const char *path);
bool ech_path_is_folder(const char *path);

#endif
