/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error table of docs/runtime.md is the one of status.h: each row is made here from the table
 * in code and looked for in the file. `runtime_test_docs --print` prints the rows to paste.
 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/status.h"

static void row(ech_status code, char *out, size_t cap)
{
    snprintf(out, cap, "| %s | %d | %s | %s |\n", ech_status_name(code), (int)code,
             ech_status_str(code), ech_status_hint(code));
}

static const ech_status CODES[] = {
#define X(name, value, meaning, hint, http, exit_code, retry) ECH_##name,
    ECH_STATUS_MAP(X)
#undef X
};

static void every_code_has_its_row(void **state)
{
    (void)state;
    static char text[1 << 18];
    char line[512];
    FILE *f = fopen(ECH_SOURCE_DIR "/docs/runtime.md", "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    for (size_t i = 0; i < sizeof CODES / sizeof CODES[0]; i++) {
        row(CODES[i], line, sizeof line);
        if (strstr(text, line) == NULL) fail_msg("docs/runtime.md lacks: %s", line);
    }
}

int main(int argc, char **argv)
{
    char line[512];
    for (size_t i = 0;
         argc > 1 && strcmp(argv[1], "--print") == 0 && i < sizeof CODES / sizeof CODES[0]; i++) {
        row(CODES[i], line, sizeof line);
        fputs(line, stdout);
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_code_has_its_row) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
