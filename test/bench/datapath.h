/* datapath.h - what the parts of mlx5_datapath share
 *
 * datapath_ours.c and datapath_peer.c know how each side does its acts, mlx5_datapath.c pairs the
 * acts into cases and reports.
 */
#ifndef DATAPATH_H
#define DATAPATH_H

#include "bench.h"

enum { SIZE = 64, DEPTH = 1024 };

extern const struct act ours_post, ours_post_inline, ours_reap, ours_reap_events, ours_receive;
extern const struct act peer_post_send, peer_post_send_inline, peer_wr, peer_wr_inline;
extern const struct act peer_poll_cq, peer_poll_and_post_recv;

/* Each opens the device by name and connects its queues in a loop; a failure ends the program with
 * a sentence. */
void ours_open(const char *device);
void ours_close(void);
void peer_open(const char *device);
void peer_close(void);

#endif
