"""Targets whose SYN is dropped and names that no server answers: an answer in time, and nobody else waits."""

import os, socket, threading, time

from checks import BlackHole, Rig, echo, percentile, row, target

# Each black dial ends by the agent's limit of 5 s; the rest is the machine's.
LIMIT_S = 8
EACH = 50
# Where the resolver of the agent is sent: nobody answers there.
DNS = "127.0.0.77"
WITH_DNS = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'


def dial_times(rig, port, count):
    times = []
    for _ in range(count):
        begin = time.monotonic()
        client = rig.dial(port)
        client.sendall(b"x")
        client.recv(1)
        times.append((time.monotonic() - begin) * 1000)
        client.close()
    return times


class Stuck:
    """Dials that wait for what never comes; each remembers its answer and when it came."""

    def __init__(self, rig, targets):
        self.answers = []
        self.threads = [threading.Thread(target=self.one, args=(rig, *at), daemon=True) for at in targets]
        for thread in self.threads:
            thread.start()

    def one(self, rig, host, port):
        begin = time.monotonic()
        client = rig.dial(port, head=False, host=host)
        self.answers.append((client.recv(4096).split(b"\r\n")[0].decode(), time.monotonic() - begin))
        client.close()

    def end(self):
        for thread in self.threads:
            thread.join(30)
        return self.answers


def row_of_stuck(name, stuck):
    answers = stuck.end()
    slowest = max((took for _, took in answers), default=0)
    kinds = sorted({answer for answer, _ in answers})
    ok = len(answers) == len(stuck.threads) and slowest < LIMIT_S and all(" 504 " in kind for kind in kinds)
    row(f"{name}: 504 within {LIMIT_S} s", ok, f"{len(answers)} answers {kinds}, slowest {slowest:.2f} s")


def check(binary, quick):
    rig, root = Rig(binary), os.geteuid() == 0
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        if root:
            silent.bind((DNS, 53))
            with open(f"{rig.dir}/resolv.conf", "w") as conf:
                conf.write(f"nameserver {DNS}\n")
            rig.agent_up("a1", before=("unshare", "-m", "sh", "-c", WITH_DNS, f"{rig.dir}/resolv.conf"))
        else:
            print("  note  not root: the slow names are left out")
            rig.agent_up("a1")
        hole, port = BlackHole(), target(echo)
        row_of_stuck("one target whose SYN is dropped", Stuck(rig, [("127.0.0.1", hole.port)]))
        count = 400 if quick else 2000
        dial_times(rig, port, count)
        alone = dial_times(rig, port, count)
        black = Stuck(rig, [("127.0.0.1", hole.port)] * EACH)
        names = Stuck(rig, [(f"slow-{n}.example", 80) for n in range(EACH if root else 0)])
        want = EACH * (2 if root else 1)
        there = rig.wait_status(lambda status: status["pending_dials"] == want)
        beside = dial_times(rig, port, count)
        left = rig.status()["pending_dials"]
        p50, p99 = [(percentile(alone, q), percentile(beside, q)) for q in (0.5, 0.99)]
        text = f"p50 {p50[0]:.2f} -> {p50[1]:.2f} ms, p99 {p99[0]:.2f} -> {p99[1]:.2f} ms, {left} still wait"
        ok = there is not None and left == want and p50[1] < p50[0] * 1.25 + 0.1 and p99[1] < 20
        row(f"an echo dial beside {want} of them is as it was", ok, text)
        row_of_stuck(f"{EACH} targets whose SYN is dropped at once", black)
        if root:
            row_of_stuck(f"{EACH} names that nobody resolves at once", names)
        hole.close()
    finally:
        silent.close()
        rig.end()
