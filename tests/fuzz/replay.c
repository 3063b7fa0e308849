/* Runs a fuzz target over files, for a compiler without libFuzzer: PROGRAM FILE... */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
#pragma weak LLVMFuzzerInitialize

int
main(int argc, char **argv)
{
    static uint8_t data[1 << 20];

    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        size_t size;
        if (file == NULL) {
            perror(argv[i]);
            return 1;
        }
        size = fread(data, 1, sizeof data, file);
        fclose(file);
        /* In memory of its own, so that reading beyond its end is seen. */
        uint8_t *copy = malloc(size > 0 ? size : 1);
        for (size_t at = 0; at < size; at++)
            copy[at] = data[at];
        LLVMFuzzerTestOneInput(copy, size);
        free(copy);
    }
    printf("%d inputs\n", argc - 1);
    return 0;
}
