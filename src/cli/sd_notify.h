/* SPDX-License-Identifier: Apache-2.0 */
/* Telling a service manager how the service is: the protocol of sd_notify(3). */
#ifndef ECH_CLI_SD_NOTIFY_H
#define ECH_CLI_SD_NOTIFY_H

/* Sends lines as "READY=1" to $NOTIFY_SOCKET; does nothing when there is none. */
void ech_sd_notify(const char *state);
/* The same for a reload, which carries the time. */
void ech_sd_notify_reloading(void);

#endif
