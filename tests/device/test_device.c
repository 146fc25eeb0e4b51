/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: what they say, which one a choice means, what their traits are. Machines that are not
 * here are described by hand. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/device.h>

#include "../support/missing.h"
#include "device/device_choice.h"
#include "device/traits.h"

static size_t device_count(void)
{
    size_t count = 0;
    cr_assert_eq(kiln_device_count(&count), KILN_OK);
    if (!count)
        cr_skip("no OpenCL device here");
    return count;
}

Test(device, describes_all_of_itself)
{
    size_t count = device_count();
    for (size_t i = 0; i < count; i++) {
        kiln_device_info info;
        cr_assert_eq(kiln_device_describe(i, &info), KILN_OK);
        cr_expect_eq(info.index, i);
        cr_expect_str_not_empty(info.name);
        cr_expect_str_not_empty(info.vendor);
        cr_expect_str_not_empty(info.platform);
        cr_expect_eq(strncmp(info.platform_version, "OpenCL ", 7), 0);
        cr_expect_str_not_empty(info.driver_version);
        cr_expect_eq(strncmp(info.opencl_c_version, "OpenCL C ", 9), 0);
        cr_expect_geq(info.compute_units, 1u);
        cr_expect_geq(info.max_work_group, 1u);
        cr_expect_geq(info.max_allocation, (uint64_t)1 << 20);
        cr_expect_geq(info.memory, info.max_allocation / 2);
        cr_expect_geq(info.local_memory, 1024u);
        cr_expect_geq(info.base_alignment, 4u);
        cr_expect_eq(info.base_alignment & (info.base_alignment - 1), 0u);
    }
}

Test(device, beyond_the_last_is_an_error)
{
    kiln_device_info info;
    size_t count = device_count();
    cr_assert_eq(kiln_device_describe(count, &info), KILN_INVALID_ARGUMENT);
    char sentence[128];
    snprintf(sentence, sizeof sentence, "kiln_device_describe: no device %zu, there are %zu", count,
             count);
    cr_expect_str_eq(kiln_last_error(), sentence);
}

Test(device, null_is_an_error)
{
    cr_expect_eq(kiln_device_count(NULL), KILN_INVALID_ARGUMENT);
    cr_expect_eq(kiln_device_describe(0, NULL), KILN_INVALID_ARGUMENT);
    cr_expect_eq(kiln_device_find("", NULL), KILN_INVALID_ARGUMENT);
}

Test(device, types_have_names)
{
    cr_expect_str_eq(kiln_device_type_name(KILN_DEVICE_CPU), "cpu");
    cr_expect_str_eq(kiln_device_type_name(KILN_DEVICE_GPU), "gpu");
    cr_expect_str_eq(kiln_device_type_name(KILN_DEVICE_ACCELERATOR), "accelerator");
    cr_expect_str_eq(kiln_device_type_name(KILN_DEVICE_OTHER), "other");
    cr_expect_str_eq(kiln_device_type_name((kiln_device_type)0), "other");
    cr_expect_str_eq(kiln_device_type_name((kiln_device_type)99), "other");
}

Test(device, is_found_by_number_and_by_its_own_name)
{
    size_t count = device_count();
    for (size_t i = 0; i < count; i++) {
        char number[32];
        size_t found = SIZE_MAX;
        kiln_device_info info;
        snprintf(number, sizeof number, "%zu", i);
        cr_assert_eq(kiln_device_find(number, &found), KILN_OK);
        cr_expect_eq(found, i);
        cr_assert_eq(kiln_device_describe(i, &info), KILN_OK);
        cr_assert_eq(kiln_device_find(info.name, &found), KILN_OK);
        kiln_device_info same;
        cr_assert_eq(kiln_device_describe(found, &same), KILN_OK);
        cr_expect_str_eq(same.name, info.name);
    }
}

Test(device, environment_chooses_and_is_read_each_time)
{
    size_t best = 0, found = 0, last = device_count() - 1;
    char number[32];
    unsetenv("KILN_DEVICE");
    cr_assert_eq(kiln_device_find(NULL, &best), KILN_OK);
    snprintf(number, sizeof number, "%zu", last);
    setenv("KILN_DEVICE", number, 1);
    cr_assert_eq(kiln_device_find(NULL, &found), KILN_OK);
    cr_expect_eq(found, last);
    cr_assert_eq(kiln_device_find("", &found), KILN_OK);
    cr_expect_eq(found, last);
    setenv("KILN_DEVICE", "nonesuch", 1);
    cr_expect_eq(kiln_device_find(NULL, &found), KILN_NO_DEVICE);
    cr_expect_not_null(strstr(kiln_last_error(), "fits \"nonesuch\" of $KILN_DEVICE; found: 0: "));
    cr_expect_eq(kiln_device_find("0", &found), KILN_OK, "a choice comes before the environment");
    setenv("KILN_DEVICE", "", 1);
    cr_assert_eq(kiln_device_find(NULL, &found), KILN_OK);
    cr_expect_eq(found, best);
}

Test(device, no_match_lists_what_there_is)
{
    size_t found = 7;
    kiln_device_info info;
    device_count();
    cr_assert_eq(kiln_device_describe(0, &info), KILN_OK);
    cr_assert_eq(kiln_device_find("nonesuch", &found), KILN_NO_DEVICE);
    char start[400];
    snprintf(start, sizeof start, "no OpenCL device fits \"nonesuch\"; found: 0: %s (%s, %s)",
             info.name, info.platform, kiln_device_type_name(info.type));
    cr_expect_eq(strncmp(kiln_last_error(), start, strlen(start)), 0, "%s", kiln_last_error());
    cr_expect_eq(found, 7u);
}

/* Each test is a process of its own, so that the loader has not looked for drivers yet. */
Test(device, no_driver_is_no_device)
{
    setenv("OCL_ICD_VENDORS", missing_path("vendors"), 1);
    unsetenv("OCL_ICD_FILENAMES"); /* drivers that ocl-icd loads beside those of the folder */
    size_t count = 7, found = 7;
    cr_assert_eq(kiln_device_count(&count), KILN_OK);
    kiln_device_info info;
    if (count && !kiln_device_describe(0, &info) && !strcmp(info.platform, "Oclgrind"))
        cr_skip("the oclgrind command does not look at OCL_ICD_VENDORS");
    cr_expect_eq(count, 0u);
    cr_assert_eq(kiln_device_find(NULL, &found), KILN_NO_DEVICE);
    cr_expect_not_null(strstr(kiln_last_error(), "no OpenCL driver is installed"));
    cr_expect_not_null(strstr(kiln_last_error(), "pocl-opencl-icd"));
    cr_assert_eq(kiln_device_find("gpu", &found), KILN_NO_DEVICE);
    cr_expect_not_null(strstr(kiln_last_error(), "no OpenCL driver is installed"));
    cr_expect_eq(kiln_device_describe(0, &info), KILN_INVALID_ARGUMENT);
}

Test(device, handles_from_elsewhere_are_described)
{
    device_count();
    struct kiln__device chosen, same;
    struct kiln__error error = {0};
    cr_assert_eq(kiln__device_choose("0", &chosen, &error), KILN_OK);
    cr_assert_eq(kiln__device_from_cl(chosen.id, &same, &error), KILN_OK);
    cr_expect_eq(same.platform, chosen.platform);
    cr_expect_eq(same.traits, chosen.traits);
    cr_expect_eq(same.info.index, 0u);
    cr_expect_str_eq(same.info.name, chosen.info.name);
    cr_expect_eq(kiln__device_from_cl(NULL, &same, &error), KILN_INVALID_ARGUMENT);
    cr_expect_str_eq(error.text, "the OpenCL device is NULL");
}

/* A machine with much in it, as its drivers told. */
static const kiln_device_info machine[] = {
    {.type = KILN_DEVICE_CPU,
     .name = "llvmpipe (LLVM 15.0.6, 256 bits)",
     .platform = "rusticl",
     .compute_units = 64,
     .clock_mhz = 3000,
     .preferred_vector_f32 = 1},
    {.type = KILN_DEVICE_CPU,
     .name = "pthread-skylake-avx512-AMD EPYC",
     .platform = "Portable Computing Language",
     .compute_units = 2,
     .clock_mhz = 2596,
     .preferred_vector_f32 = 16},
    {.type = KILN_DEVICE_GPU,
     .name = "NVIDIA T4",
     .platform = "NVIDIA CUDA",
     .compute_units = 40,
     .clock_mhz = 1590,
     .preferred_vector_f32 = 1},
    {.type = KILN_DEVICE_GPU,
     .name = "NVIDIA H200",
     .platform = "NVIDIA CUDA",
     .compute_units = 132,
     .clock_mhz = 1980,
     .preferred_vector_f32 = 1},
    {.type = KILN_DEVICE_ACCELERATOR,
     .name = "some board",
     .platform = "Boards",
     .compute_units = 500,
     .clock_mhz = 1000},
    {.type = KILN_DEVICE_GPU,
     .name = "llvmpipe (LLVM 13.0.1)",
     .platform = "Clover",
     .compute_units = 999,
     .clock_mhz = 9999},
    {.type = KILN_DEVICE_CPU,
     .name = "Oclgrind Simulator",
     .platform = "Oclgrind",
     .compute_units = 1,
     .clock_mhz = 1},
};

#define MACHINE_DEVICES (sizeof machine / sizeof *machine)

/* The number of the device that `choice` means on that machine without the devices of `hidden`,
 * a bit each; -1 for none. */
static int pick(const char *choice, unsigned hidden)
{
    struct kiln__device devices[MACHINE_DEVICES] = {0};
    struct kiln__device_list list = {.devices = {devices, 0, MACHINE_DEVICES}};
    for (size_t i = 0; i < MACHINE_DEVICES; i++) {
        if (hidden & 1u << i)
            continue;
        struct kiln__device *device = &devices[list.devices.count++];
        device->info = machine[i];
        device->info.index = i;
        device->traits = kiln__traits_for(&machine[i]);
    }
    const struct kiln__device *picked = kiln__device_pick(&list, choice);
    return picked ? (int)picked->info.index : -1;
}

Test(choice, best_is_a_real_gpu_then_an_accelerator_then_a_cpu)
{
    cr_expect_eq(pick("", 0), 3, "the faster GPU");
    cr_expect_eq(pick("", 1 << 3), 2, "the other GPU");
    cr_expect_eq(pick("", 3 << 2), 4, "the accelerator");
    cr_expect_eq(pick("", 7 << 2), 1, "PoCL before software that calls itself a GPU");
    cr_expect_eq(pick("", 7 << 2 | 1 << 1), 5, "software before a simulator");
    cr_expect_eq(pick("", 0x3f), 6, "a simulator before nothing");
    cr_expect_eq(pick("", 0x7f), -1);
}

Test(choice, type_is_taken_at_its_word)
{
    cr_expect_eq(pick("gpu", 0), 3);
    cr_expect_eq(pick("GPU", 0), 3);
    cr_expect_eq(pick("gpu", 3 << 2), -1, "software is no GPU");
    cr_expect_eq(pick("cpu", 0), 1);
    cr_expect_eq(pick("accelerator", 0), 4);
    cr_expect_eq(pick("other", 0), -1);
}

Test(choice, number_is_the_index)
{
    cr_expect_eq(pick("0", 0), 0);
    cr_expect_eq(pick("6", 0), 6);
    cr_expect_eq(pick("7", 0), -1);
    cr_expect_eq(pick("4", 1 << 4), -1, "no part of a name: T4");
    cr_expect_eq(pick("18446744073709551616", 0), -1, "2^64 is not 0");
}

Test(choice, part_of_a_name_in_any_case)
{
    cr_expect_eq(pick("h200", 0), 3);
    cr_expect_eq(pick("nvidia", 0), 3, "the best that fits");
    cr_expect_eq(pick("t4", 0), 2);
    cr_expect_eq(pick("RUSTICL", 0), 0);
    cr_expect_eq(pick("portable", 0), 1);
    cr_expect_eq(pick("pocl", 0), 1, "PoCL's name is that of its traits only");
    cr_expect_eq(pick("h100", 0), -1);
}

/* --- traits ----------------------------------------------------------------------------------- */

static const char *traits_name(kiln_device_type type, const char *platform, uint32_t width)
{
    kiln_device_info info = {
        .type = type, .preferred_vector_f32 = width, .shares_host_memory = type == KILN_DEVICE_CPU};
    snprintf(info.platform, sizeof info.platform, "%s", platform);
    return kiln__traits_for(&info)->name;
}

Test(traits, name_of_the_processor)
{
    kiln_device_info info = {.type = KILN_DEVICE_CPU,
                             .name = "pthread-skylake-avx512-AMD EPYC",
                             .platform = "Portable Computing Language",
                             .preferred_vector_f32 = 16,
                             .shares_host_memory = 1};
    cr_expect_str_eq(kiln__traits_for(&info)->name, "pocl-amd-16");
    info.preferred_vector_f32 = 8;
    cr_expect_str_eq(kiln__traits_for(&info)->name, "pocl-cpu-8");
    info.shares_host_memory = 0; /* it is another machine's */
    cr_expect_str_eq(kiln__traits_for(&info)->name, "pocl-remote-8");
    cr_expect(!kiln__traits_for(&info)->live_host_pointers);
}

Test(traits, first_row_that_fits)
{
    const char *pocl = "Portable Computing Language";
    cr_expect_str_eq(traits_name(KILN_DEVICE_CPU, pocl, 16), "pocl-cpu-16");
    cr_expect_str_eq(traits_name(KILN_DEVICE_CPU, pocl, 8), "pocl-cpu-8");
    cr_expect_str_eq(traits_name(KILN_DEVICE_CPU, pocl, 4), "pocl-cpu-4");
    cr_expect_str_eq(traits_name(KILN_DEVICE_CPU, pocl, 0), "pocl-cpu-4");
    cr_expect_str_eq(traits_name(KILN_DEVICE_GPU, pocl, 1), "gpu");
    cr_expect_str_eq(traits_name(KILN_DEVICE_GPU, "NVIDIA CUDA", 1), "nvidia-gpu");
    cr_expect_str_eq(traits_name(KILN_DEVICE_CPU, "Oclgrind", 1), "oclgrind");
    cr_expect_str_eq(traits_name(KILN_DEVICE_CPU, "Intel(R) OpenCL", 1), "intel-cpu");
    cr_expect_str_eq(traits_name(KILN_DEVICE_GPU, "Intel(R) OpenCL Graphics", 1), "gpu");
    cr_expect_str_eq(traits_name(KILN_DEVICE_CPU, "Somebody's OpenCL", 8), "cpu");
    cr_expect_str_eq(traits_name(KILN_DEVICE_OTHER, "", 0), "gpu");
    cr_expect_str_eq(kiln__traits_for(&machine[0])->name, "llvmpipe");
    cr_expect_str_eq(kiln__traits_for(&machine[5])->name, "llvmpipe");
}

static bool is_power_of_two(unsigned value)
{
    return value && !(value & (value - 1));
}

Test(traits, are_usable_on_every_device)
{
    for (size_t i = 0; i < MACHINE_DEVICES; i++) {
        const struct kiln__traits *traits = kiln__traits_for(&machine[i]);
        cr_expect(is_power_of_two(traits->vector) && traits->vector <= 16);
        cr_expect(is_power_of_two(traits->work_group));
        cr_expect_geq(traits->chunks, 1u);
        cr_expect_geq(traits->min_chunk, 1u);
        cr_expect(!traits->chunked || traits->min_chunk % 16 == 0);
        cr_expect(traits->chunked == (traits->long_run > 0), "%s", traits->name);
        cr_expect_not_null(traits->build_options);
    }
}

static bool builds(cl_context context, const struct kiln__device *device, const char *source)
{
    cl_int code = CL_SUCCESS;
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    cr_assert_eq(code, CL_SUCCESS);
    code = clBuildProgram(program, 1, &device->id, device->traits->build_options, NULL, NULL);
    clReleaseProgram(program);
    return code == CL_SUCCESS;
}

Test(traits, are_true_of_the_devices_here)
{
    size_t count = device_count();
    for (size_t i = 0; i < count; i++) {
        char number[32];
        struct kiln__device device;
        cl_int code = CL_SUCCESS;
        snprintf(number, sizeof number, "%zu", i);
        cr_assert_eq(kiln__device_choose(number, &device, NULL), KILN_OK);
        cl_context context = clCreateContext(NULL, 1, &device.id, NULL, NULL, &code);
        cr_assert_eq(code, CL_SUCCESS);
        cr_expect(builds(context, &device, "kernel void k(global float *a) { *a = 1; }"),
                  "build options \"%s\"", device.traits->build_options);
        if (device.traits->nontemporal_stores)
            cr_expect(builds(context, &device,
                             "kernel void k(global float4 *a)"
                             "{ __builtin_nontemporal_store((float4)(1), a); }"));
        clReleaseContext(context);
    }
}

/* --- errors of OpenCL in words ---------------------------------------------------------------- */

Test(opencl, errors_have_names_and_meanings)
{
    cr_expect_str_eq(kiln__cl_name(-5), "CL_OUT_OF_RESOURCES");
    cr_expect_str_eq(kiln__cl_name(-1001), "CL_PLATFORM_NOT_FOUND_KHR");
    cr_expect_str_eq(kiln__cl_name(-9999), "an unknown OpenCL error");
    cr_expect_eq(kiln__cl_status(CL_SUCCESS), KILN_OK);
    cr_expect_eq(kiln__cl_status(-4), KILN_OUT_OF_DEVICE_MEMORY);
    cr_expect_eq(kiln__cl_status(-5), KILN_OUT_OF_DEVICE_MEMORY);
    cr_expect_eq(kiln__cl_status(-6), KILN_OUT_OF_HOST_MEMORY);
    cr_expect_eq(kiln__cl_status(-61), KILN_OUT_OF_DEVICE_MEMORY);
    cr_expect_eq(kiln__cl_status(-36), KILN_DEVICE_ERROR);
    struct kiln__error error = {0};
    cr_expect_eq(kiln__cl_fail(&error, "clFinish", -36), KILN_DEVICE_ERROR);
    cr_expect_str_eq(error.text, "clFinish answered CL_INVALID_COMMAND_QUEUE (-36)");
}
