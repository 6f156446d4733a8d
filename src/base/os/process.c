/* SPDX-License-Identifier: Apache-2.0 */
/* Processes: see process.h. Keeps no state; each call stands alone. */
#include "src/base/os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/os/fault.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

pid_t ech_os_fork(void)
{
    if (ech_fault_hit(ECH_FAULT_FORK)) {
        errno = EAGAIN;
        return -1;
    }
    return fork();
}

int ech_os_pidfd_open(const pid_t pid)
{
    return ech_os_above_stdio((int)syscall(SYS_pidfd_open, pid, 0));
}

bool ech_os_pidfd_gone(const int pidfd, const int timeout_ms)
{
    struct pollfd p = { .fd = pidfd, .events = POLLIN };
    const int64_t deadline = ech_now_ns() + timeout_ms * ECH_NS_PER_MS;
    for (;;) {
        const int64_t left = (deadline - ech_now_ns()) / ECH_NS_PER_MS;
        const int rc = poll(&p, 1, timeout_ms == 0 || left < 0 ? 0 : (int)left);
        if (rc >= 0 || errno != EINTR) return rc > 0;
    }
}

void ech_os_kill(const pid_t pid, const bool group)
{
    if (pid <= 0 || ech_fault_hit(ECH_FAULT_KILL)) return;
    if (group) (void)kill(-pid, SIGKILL);
    (void)kill(pid, SIGKILL);
}

bool ech_os_child_status(const pid_t pid, const bool reap, int *const ret_status)
{
    siginfo_t info = { 0 };
    int rc;
    do {
        rc = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | (reap ? 0 : WNOWAIT));
    } while (rc != 0 && errno == EINTR);
    if (rc != 0) {
        *ret_status = -1; /* ECHILD: whoever ignores SIGCHLD has taken it */
        return true;
    }
    if (info.si_pid == 0) return false;
    *ret_status = info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8 : info.si_status & 0x7f;
    return true;
}

void ech_os_status_text(const int status, char *const out, const size_t cap)
{
    if (status == -1) {
        (void)snprintf(out, cap, "exit status not known");
    } else if (WIFSIGNALED(status)) {
        (void)snprintf(out, cap, "killed by signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    } else {
        (void)snprintf(out, cap, "exit status %d", WEXITSTATUS(status));
    }
}

static void close_span(const unsigned first, const unsigned last)
{
    if (first > last || syscall(SYS_close_range, first, last, 0) == 0) return;
    for (unsigned fd = first; fd <= last && fd < 65536; fd++)
        close((int)fd);
}

void ech_os_close_others(const int *const keep, const size_t n)
{
    unsigned from = 3;
    for (;;) {
        unsigned next = ~0u; /* the smallest kept descriptor at or above from */
        for (size_t i = 0; i < n; i++) {
            if (keep[i] >= (int)from && (unsigned)keep[i] < next) next = (unsigned)keep[i];
        }
        if (next == ~0u) break;
        if (next > from) close_span(from, next - 1);
        from = next + 1;
    }
    close_span(from, ~0u);
}

void ech_os_detach_stdio(void)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return;
    (void)dup2(null, 0);
    (void)dup2(null, 1);
    if (fcntl(2, F_GETFD) < 0) (void)dup2(null, 2);
    if (null > 2) close(null);
}

int ech_os_above_stdio(const int fd)
{
    if (fd < 0 || fd > 2) return fd;
    const int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    const int saved = errno;
    close(fd);
    errno = saved;
    return moved;
}

void ech_os_fill_stdio(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        /* The lowest free number is fd: those below it are open by now. */
        if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    }
}

void ech_os_child_signals(void)
{
    static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
    struct sigaction sa = { .sa_handler = SIG_DFL };
    /* Faults keep their handlers: a sanitiser's report is worth more than a core file. */
    for (int s = 1; s < NSIG; s++) {
        if (s != SIGSEGV && s != SIGBUS && s != SIGFPE && s != SIGILL && s != SIGABRT)
            (void)sigaction(s, &sa, NULL);
    }
    sa.sa_handler = SIG_IGN;
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        (void)sigaction(ignored[i], &sa, NULL);
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

void ech_os_die_with_parent(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void ech_os_set_name(const char *const name)
{
    (void)prctl(PR_SET_NAME, name);
}

unsigned ech_os_thread_count(void)
{
    FILE *const f = fopen("/proc/self/status", "re");
    char line[128];
    unsigned n = 1;
    if (f == NULL) return n;
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "Threads: %u", &n) == 1) break;
    }
    (void)fclose(f);
    return n;
}

int64_t ech_os_cpu_ns(const pid_t pid)
{
    clockid_t id;
    struct timespec ts;
    if (clock_getcpuclockid(pid, &id) != 0 || clock_gettime(id, &ts) != 0) return -1;
    return (int64_t)ts.tv_sec * ECH_NS_PER_S + ts.tv_nsec;
}

void ech_os_random(void *const out, const size_t n)
{
    if (getrandom(out, n, 0) == (ssize_t)n) return;
    /* Only before the kernel's pool is up: uniqueness is what matters here, not secrecy. */
    const uint64_t mix = (uint64_t)ech_now_ns() * UINT64_C(0x9E3779B97F4A7C15) ^ (uint64_t)getpid();
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)out)[i] = (unsigned char)(mix >> 8 * (i % 8));
}

#if defined(ECH_SANITIZE)
void __lsan_do_leak_check(void) __attribute__((weak));
#endif

void ech_os_exit(const int code, const bool check_leaks)
{
#if defined(ECH_SANITIZE)
    if (check_leaks && __lsan_do_leak_check != NULL) __lsan_do_leak_check();
#else
    (void)check_leaks;
#endif
    _exit(code);
}
