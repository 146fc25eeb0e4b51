/* SPDX-License-Identifier: Apache-2.0 */
/* Model files made from seeded bytes (fuzz/seeded.h). make check-fuzz has libFuzzer look for bytes.
 */
#include <criterion/criterion.h>
#include <stdio.h>

#include "../fuzz/onnx.h"
#include "../fuzz/seeded.h"

Test(fuzz_onnx, hostile_model_files_get_an_answer_and_leave_nothing)
{
    run_seeds(64, 1024);
    struct fuzz_files done = fuzz_file_count();
    printf("# %llu files, %llu loaded, %llu recorded\n", done.files, done.loaded, done.recorded);
}
