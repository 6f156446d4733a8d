/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET / and the page's files. The policy lets the page load its own files and talk to its own
 * server, and nothing else: not even text that became HTML by a mistake could run.
 */
#include <string.h>

#include "src/server/api.h"
#include "src/server/page.h"
#include "src/server/reply.h"

static const char *type_of(const char *const name)
{
    const char *const dot = strrchr(name, '.');
    if (dot != NULL && strcmp(dot, ".js") == 0) return "text/javascript; charset=utf-8";
    if (dot != NULL && strcmp(dot, ".css") == 0) return "text/css; charset=utf-8";
    return "text/html; charset=utf-8";
}

void ech_api_page(ech_exchange *const x)
{
    const char *const name = x->route->path[1] == '\0' ? "index.html" : x->route->path + 1;
    for (const ech_page_file *f = ECH_PAGE_FILES; f->name != NULL; f++) {
        if (strcmp(f->name, name) != 0) continue;
        x->policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                    "img-src 'self' data:; "
                    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
        if (ech_buf_append(&x->reply, f->bytes, f->len) == ECH_OK) {
            ech_reply_text(x, 200, type_of(name));
        } else {
            ech_reply_error(x, 503, "out_of_memory", NULL, "there is no memory for the answer now");
        }
        return;
    }
    ech_reply_error(x, 404, "unknown_path", NULL, "there is no file %s", name);
}
