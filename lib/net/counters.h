/* counters.h - what a worker's part of a net counts: fates of frames and packets, and what happened beside
 *
 * In their order: each frame that was received or taken over has one fate from `delivered` to `drop_closed`, each
 * packet that was to be sent one from `tx_frames` to `drop_tx_closed`; vbn_net_balance() adds them up.
 */
#ifndef VBN_NET_COUNTERS_H
#define VBN_NET_COUNTERS_H

#define NET_COUNTERS(X)                                                                         \
	X(rx_frames, "frames received")                                                         \
	X(taken_over, "frames that another worker has handed to this one")                      \
	/* fates of a frame */                                                                  \
	X(delivered, "frames whose datagram went to a socket")                                  \
	X(answered, "frames that were turned into their answer, or caused it")                  \
	X(consumed, "frames of ARP, ND, IGMP, MLD and ICMP that only said something")           \
	X(forwarded, "packets passed on to where they are to go")                               \
	X(merged, "fragments that became part of a datagram, all but its first")                \
	X(handed_over, "frames handed to the worker that has their socket, or their fragments") \
	X(drop_short, "frames shorter than their headers say")                                  \
	X(drop_chained, "frames that came in several segments")                                 \
	X(drop_other_host, "frames to another MAC")                                             \
	X(drop_vlan, "frames of a VLAN that no interface has")                                  \
	X(drop_ethertype, "frames of protocols that the stack has not")                         \
	X(drop_arp, "ARP packets that are malformed or not for an interface's addresses")       \
	X(drop_nd, "neighbour discovery that is malformed or from outside of the link")         \
	X(drop_version, "IP packets whose version or header length is wrong")                   \
	X(drop_ip_sum, "IPv4 headers with a wrong checksum")                                    \
	X(drop_l4_sum, "UDP, ICMP or IGMP with a wrong checksum")                               \
	X(drop_source, "packets from an address that nobody can have")                          \
	X(drop_options, "IPv4 options or IPv6 extension headers that are malformed")            \
	X(drop_source_route, "source-routed packets")                                           \
	X(drop_not_local, "packets to an address that is not ours, where nothing is forwarded") \
	X(drop_no_route, "packets to be forwarded where there is no route")                     \
	X(drop_ttl, "packets to be forwarded whose hops were used up")                          \
	X(drop_too_big, "packets larger than the next MTU that may not be fragmented")          \
	X(drop_group, "packets to groups that nobody has joined")                               \
	X(drop_protocol, "packets of a transport that the stack has not")                       \
	X(drop_udp, "UDP datagrams whose length is wrong")                                      \
	X(drop_no_port, "UDP datagrams for which there is no socket")                           \
	X(drop_udp_full, "UDP datagrams for a socket that has no room to wait")                 \
	X(drop_icmp, "ICMP messages that are malformed or unknown")                             \
	X(drop_icmp_unverified, "ICMP errors about nothing that was sent")                      \
	X(drop_igmp, "IGMP or MLD messages that are malformed")                                 \
	X(drop_fragment, "fragments that are malformed")                                        \
	X(drop_fragment_overlap, "fragments of a datagram in which some overlap")               \
	X(drop_fragment_duplicate, "fragments that were there already")                         \
	X(drop_fragment_time, "fragments of a datagram that did not become whole in time")      \
	X(drop_fragment_room, "fragments given up for newer ones, or of too many pieces")       \
	X(drop_no_buf, "frames that no answer or copy could be made of: the pool is empty")     \
	X(drop_handed_full, "frames for another worker that had no room for them")              \
	X(drop_closed, "frames held by what was closed")                                        \
	/* sending */                                                                           \
	X(tx_packets, "packets that were to be sent, with fragments one by one")                \
	X(tx_frames, "frames that the queue has taken")                                         \
	X(drop_tx_no_neighbour, "packets whose next hop did not answer")                        \
	X(drop_tx_neighbours_full, "packets whose next hop found no room among the neighbours") \
	X(drop_tx_waiting, "packets that waited for a neighbour and made room for others")      \
	X(drop_tx_full, "packets that the queue had no room for")                               \
	X(drop_tx_refused, "packets to a queue that has failed, or cannot send such")           \
	X(drop_tx_no_buf, "packets that found no buf for a header or fragment")                 \
	X(drop_tx_no_end, "packets to a link on which the worker has no queue")                 \
	X(drop_tx_no_route, "answers for which there is no route or source address")            \
	X(drop_tx_closed, "packets that waited when the end was closed")                        \
	/* what happened beside */                                                              \
	X(udp_received, "datagrams that went to sockets")                                       \
	X(udp_sent, "datagrams sent")                                                           \
	X(udp_copied, "copies of datagrams to several sockets of a group")                      \
	X(udp_copy_no_buf, "copies for a group's socket that could not be made")                \
	X(copies_handed_over, "such copies handed to the workers that have those sockets")      \
	X(copies_handed_full, "such copies for a worker that had no room for them")             \
	X(reassembled, "datagrams put together")                                                \
	X(fragmented, "packets sent in fragments")                                              \
	X(fragments_sent, "fragments made")                                                     \
	X(echo_answered, "echo requests answered")                                              \
	X(icmp_sent, "ICMP errors sent")                                                        \
	X(icmp_limited, "ICMP errors not sent: too many in a second")                           \
	X(icmp_no_buf, "ICMP errors not sent: no buf")                                          \
	X(icmp_received, "ICMP errors that were about something that was sent")                 \
	X(path_mtu_lowered, "paths whose MTU turned out smaller")                               \
	X(arp_requests_sent, "ARP requests and announcements sent")                             \
	X(arp_replies_sent, "ARP replies sent")                                                 \
	X(solicitations_sent, "neighbour solicitations sent")                                   \
	X(advertisements_sent, "neighbour advertisements sent")                                 \
	X(neighbours_made, "neighbours that became known")                                      \
	X(neighbours_changed, "neighbours whose MAC changed")                                   \
	X(neighbours_failed, "neighbours that did not answer")                                  \
	X(neighbours_evicted, "neighbours forgotten to make room")                              \
	X(learned_later, "things learned that had to wait for another worker")                  \
	X(learned_in_vain, "things learned and forgotten, since too many had to wait")          \
	X(address_conflicts, "times that somebody else claimed an address of ours")             \
	X(reports_sent, "IGMP and MLD reports sent")

#define NET_COUNTER(name, help) C_##name,
enum net_counter { NET_COUNTERS(NET_COUNTER) C_N };
#undef NET_COUNTER

#endif
