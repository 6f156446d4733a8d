/* SPDX-License-Identifier: Apache-2.0 */
/* The program: finds the command and runs it. Only code in this folder may exit. */
#include <stdio.h>

int main(void)
{
    (void)fputs("echelon: no command yet\n", stderr);
    return 2;
}
