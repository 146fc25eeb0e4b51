/* SPDX-License-Identifier: Apache-2.0 */
/* Writes to connections, held back where a rate is used up: who finds no room comes again. */
#include "scale_link.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Who waits for the link and gets no processor for so long loses nothing of its rate. */
#define LATE_S 1

enum { MOST_PARTS = 64, LEAST_BYTES = 16384 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the rest */
static double rate, allowed, looked, sent;
static bool waits;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void slow_link(double wanted)
{
    pthread_mutex_lock(&lock);
    rate = wanted;
    allowed = 0;
    looked = now();
    pthread_mutex_unlock(&lock);
}

double link_bytes(void)
{
    pthread_mutex_lock(&lock);
    double bytes = sent;
    pthread_mutex_unlock(&lock);
    return bytes;
}

/* A connection over TCP whose writer comes again where it does not take all. */
static bool is_link(int file)
{
    int domain = 0, type = 0;
    socklen_t size = sizeof domain;
    return !getsockopt(file, SOL_SOCKET, SO_DOMAIN, &domain, &size) &&
           (domain == AF_INET || domain == AF_INET6) &&
           !getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &size) && type == SOCK_STREAM &&
           fcntl(file, F_GETFL) & O_NONBLOCK;
}

/* Of `size` bytes, those that may go now; with the lock. */
static size_t take(size_t size)
{
    if (rate <= 0)
        return size;
    const double time = now(), most = LEAST_BYTES + (waits ? rate * LATE_S : 0);
    allowed += (time - looked) * rate;
    looked = time;
    if (allowed > most)
        allowed = most;
    waits = (double)size > allowed;
    if (!waits)
        return size;
    return allowed < LEAST_BYTES ? 0 : (size_t)allowed;
}

/* What a write of `count` parts becomes: shorter, or one that finds no room. */
static ssize_t send_parts(int file, const struct iovec *parts, int count, int flags)
{
    struct iovec some[MOST_PARTS];
    struct msghdr message = {.msg_iov = some};
    size_t size = 0;
    for (int i = 0; i < count && i < MOST_PARTS; i++)
        size += parts[i].iov_len;
    pthread_mutex_lock(&lock);
    size_t rest = take(size);
    ssize_t gone = -1;
    if (rest || !size) {
        for (int i = 0; i < count && i < MOST_PARTS && (rest || !i); i++) {
            some[i] = parts[i];
            some[i].iov_len = rest < parts[i].iov_len ? rest : parts[i].iov_len;
            rest -= some[i].iov_len;
            message.msg_iovlen++;
        }
        gone = (ssize_t)syscall(SYS_sendmsg, file, &message, flags);
        sent += gone > 0 ? (double)gone : 0;
        allowed -= gone > 0 ? (double)gone : 0;
    } else {
        errno = EAGAIN;
    }
    pthread_mutex_unlock(&lock);
    return gone;
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    return is_link(file) ? send_parts(file, parts, count, 0)
                         : (ssize_t)syscall(SYS_writev, file, parts, count);
}

ssize_t sendmsg(int file, const struct msghdr *message, int flags)
{
    return is_link(file) && !message->msg_controllen && !message->msg_name
               ? send_parts(file, message->msg_iov, (int)message->msg_iovlen, flags)
               : (ssize_t)syscall(SYS_sendmsg, file, message, flags);
}

ssize_t send(int file, const void *bytes, size_t size, int flags)
{
    const struct iovec part = {(void *)bytes, size};
    return is_link(file) ? send_parts(file, &part, 1, flags)
                         : (ssize_t)syscall(SYS_sendto, file, bytes, size, flags, NULL, 0);
}
