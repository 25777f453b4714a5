"""roce.py - a host in user space on a TAP: answers ARP, sends UD packets of RoCEv2 back; and what a capture holds

ICRCs are scapy's, so neither Linux's nor ours. Its host damages a copy of each answer, which goes ahead: a peer that checks
ICRCs never sees these.
"""
import fcntl
import logging
import os
import socket
import struct
import subprocess
import threading

logging.getLogger("scapy").setLevel(logging.ERROR) # it warns of networks that are not there

# pylint: disable=wrong-import-position
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw
from scapy.utils import PcapReader

UD_SEND_ONLY = 0x64
ROCE_PORT = 4791
PINGPONG_QKEY = 0x11111111


def open_tap(name):
    """The user's side of a new TAP: a file of frames."""
    tunsetiff, iff_tap, iff_no_pi = 0x400454CA, 0x0002, 0x1000
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(file, tunsetiff, struct.pack("16sH22x", name.encode(), iff_tap | iff_no_pi))
    return file


def icrc_is_right(frame):
    """frame: Ether. Made anew by scapy without its ICRC, it is the same."""
    again = Ether(bytes(frame))
    again[BTH].icrc = None
    return bytes(again) == bytes(frame)


class EchoHost(threading.Thread):
    """It has an address, and a queue pair of a number that nobody made."""
    mac, address, qpn = "52:54:00:00:00:03", "10.88.0.3", 0x77

    def __init__(self, tap):
        super().__init__(daemon=True)
        self.tap, self.received, self.wrong = open_tap(tap), 0, 0

    def run(self):
        while True:
            frame = Ether(os.read(self.tap, 65536))
            if ARP in frame and frame[ARP].op == 1 and frame[ARP].pdst == self.address:
                self.send(self.to(frame) / ARP(op=2, hwsrc=self.mac, psrc=self.address,
                                               hwdst=frame[ARP].hwsrc, pdst=frame[ARP].psrc))
            elif BTH in frame and frame[IP].dst == self.address:
                self.take(frame)

    def take(self, frame):
        if not icrc_is_right(frame) or frame[BTH].opcode != UD_SEND_ONLY or frame[BTH].dqpn != self.qpn:
            self.wrong += 1
            return
        self.received += 1
        deth_and_data = bytes(frame[BTH].payload)
        qpn = int.from_bytes(deth_and_data[5:8], "big")
        deth = struct.pack("!II", PINGPONG_QKEY, self.qpn)
        answer = bytes(self.to(frame) / IP(src=self.address, dst=frame[IP].src, flags="DF") /
                       UDP(sport=0xC000, dport=ROCE_PORT, chksum=0) /
                       BTH(opcode=UD_SEND_ONLY, padcount=frame[BTH].padcount, dqpn=qpn, psn=frame[BTH].psn) /
                       Raw(deth + deth_and_data[8:]))
        self.send(answer[:-5] + bytes([answer[-5] ^ 1]) + answer[-4:])
        self.send(answer)

    def to(self, frame):
        return Ether(dst=frame.src, src=self.mac)

    def send(self, frame):
        os.write(self.tap, bytes(frame))


def meet_pingpong(listening, qpn, address):
    """What a server of libibverbs' ping-pongs says: takes a client's addresses, gives LID:QPN:PSN:GID, waits for `done`."""
    gid = b"\0" * 10 + b"\xff\xff" + socket.inet_aton(address)
    client, _ = listening.accept()
    with client:
        words = f"{0:04x}:{qpn:06x}:{0:06x}:{gid.hex()}".encode() + b"\0"
        client.recv(len(words), socket.MSG_WAITALL)
        client.sendall(words)
        client.recv(len("done"), socket.MSG_WAITALL)


def undecoded(pcap):
    """(how many RoCE packets tshark finds in a capture, lines of what it cannot make sense of)"""
    command = ["tshark", "-n", "-r", pcap, "-Y", f"udp.port == {ROCE_PORT} or _ws.malformed", "-T", "fields"]
    for field in "infiniband.bth.opcode", "_ws.malformed", "frame.number", "frame.protocols":
        command += ["-e", field]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return len(lines), [line for line in lines if not line.split("\t")[0].isdigit() or line.split("\t")[1]]
