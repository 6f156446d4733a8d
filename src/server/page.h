/* SPDX-License-Identifier: Apache-2.0 */
/* The files of web/, compiled into the program by cmake/Embed.cmake. */
#ifndef ECH_SERVER_PAGE_H
#define ECH_SERVER_PAGE_H

#include <stddef.h>

typedef struct ech_page_file {
    const char *name;           /* NULL ends the table */
    const unsigned char *bytes; /* [len] */
    size_t len;
} ech_page_file;

extern const ech_page_file ECH_PAGE_FILES[];

#endif
