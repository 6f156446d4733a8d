/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes: forking, watching by pidfd, and what a child does first. Everything here may be
 * called after a fork in a process that had threads.
 */
#ifndef ECH_BASE_OS_PROCESS_H
#define ECH_BASE_OS_PROCESS_H

#include <sys/types.h>

#include "echelon/status.h"

/* fork(2), through the fault. Returns -1 with errno on failure. */
pid_t ech_os_fork(void);
/* A descriptor that becomes readable when the process has ended; -1 with errno on failure. */
int ech_os_pidfd_open(pid_t pid);
/* Waits up to timeout_ms for pidfd to become readable; true when the process is gone. */
bool ech_os_pidfd_gone(int pidfd, int timeout_ms);
/* SIGKILL to the process, or to its whole group. */
void ech_os_kill(pid_t pid, bool group);
/*
 * The exit status of a child that has ended, as waitpid gives it. reap: also frees the process
 * entry. False when it still runs; true with status -1 when somebody else has reaped it.
 */
bool ech_os_child_status(pid_t pid, bool reap, int *ret_status);
/* "exit status 3", "killed by signal 9 (Killed)", "not known". */
void ech_os_status_text(int status, char *out, size_t cap);

/* Closes every descriptor but 0, 1, 2 and those in keep (n of them, any order, -1 is skipped). */
void ech_os_close_others(const int *keep, size_t n);
/*
 * Standard input and output become /dev/null; standard error stays where it was open. What the
 * caller still needs must be above 2: see ech_os_above_stdio.
 */
void ech_os_detach_stdio(void);
/*
 * Moves a descriptor that took the number of a closed standard stream above 2, so that neither a
 * log line goes there nor a detach overwrites it. -1 stays -1; on failure fd is closed, -1 with
 * errno.
 */
int ech_os_above_stdio(int fd);
/* Standard streams that are closed become descriptors on which every read or write fails. */
void ech_os_fill_stdio(void);
/* Ignores INT, TERM, HUP, QUIT and PIPE and puts every other signal back to its default. */
void ech_os_child_signals(void);
/* Asks for SIGKILL when the forking thread's process ends. */
void ech_os_die_with_parent(void);
void ech_os_set_name(const char *name);
/* Threads of this process; 1 when that can't be found out. */
unsigned ech_os_thread_count(void);
/* Ends the process at once; in a sanitiser build leaks are reported first when check_leaks. */
_Noreturn void ech_os_exit(int code, bool check_leaks);
/* CPU time of a process so far in ns, -1 when it can't be read. */
int64_t ech_os_cpu_ns(pid_t pid);
/* Random bytes that no two workers share. */
void ech_os_random(void *out, size_t n);

#endif
