/* SPDX-License-Identifier: Apache-2.0 */
/* A slow link for each rank, as if it were a machine of its own: what this process sends over TCP
 * goes at no more than a rate, all of its connections together. The executable's own functions for
 * it are found before the C library's, so that an MPI that talks over TCP goes through them. */
#pragma once

/* From now on so many bytes a second; 0: as many as there may be. */
void slow_link(double rate);

/* Bytes sent over TCP so far. */
double link_bytes(void);
