/* SPDX-License-Identifier: Apache-2.0 */
/*
 * make_model SHAPE FOLDER [TYPE [SEED]]: a model of random weights for benchmarks. SHAPE is 0.6b,
 * 1.7b, 4b, 8b or 14b (Qwen3's), TYPE bf16 (default), f16 or f32. The folder must exist; give it a
 * tokenizer by copying tokenizer.json of any model with a smaller vocabulary.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tools/random_model.h"

int main(const int argc, char **const argv)
{
    random_model m;
    if (argc < 3 || argc > 5 || !random_model_shape(argv[1], &m)) {
        (void)fprintf(stderr,
                      "usage: make_model 0.6b|1.7b|4b|8b|14b FOLDER [bf16|f16|f32 [SEED]]\n");
        return 2;
    }
    if (argc > 3) m.type = argv[3];
    if (argc > 4) m.seed = strtoull(argv[4], NULL, 10);
    if (strcmp(m.type, "bf16") != 0 && strcmp(m.type, "f16") != 0 && strcmp(m.type, "f32") != 0) {
        (void)fprintf(stderr, "make_model: no type '%s'\n", m.type);
        return 2;
    }
    if (!random_model_write(&m, argv[2])) {
        perror(argv[2]);
        return 1;
    }
    return 0;
}
