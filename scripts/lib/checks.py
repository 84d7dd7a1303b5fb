"""What the check scripts share: processes, a rig of server and agents on loopback, targets, and one table of rows."""

import argparse, json, os, re, shutil, signal, socket, ssl, subprocess, sys, tempfile, threading, time, urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEAD = b"HTTP/1.1 200 Connection Established\r\n\r\n"
ROWS = []


def row(name, ok, figure=""):
    ROWS.append((name, ok))
    print(f"  {'ok  ' if ok else 'FAIL'}  {name:<74} {figure}", flush=True)


def finish():
    """Prints the sum and ends the script: 1 if a row failed or none ran."""
    held = sum(1 for _, ok in ROWS if ok)
    print(f"{held} of {len(ROWS)} rows hold")
    sys.exit(0 if ROWS and held == len(ROWS) else 1)


def arguments(doc, **more):
    """`--quick`, `--binary` and what `more` adds (name: help); the binary is built if none is given."""
    parser = argparse.ArgumentParser(description=doc.strip().split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes, the same checks")
    parser.add_argument("--binary", help="the tautline to check; built if absent")
    for name, text in more.items():
        parser.add_argument(f"--{name}", help=text)
    args = parser.parse_args()
    if not args.binary:
        subprocess.run(["cargo", "build", "--release", "--locked", "-q"], cwd=ROOT, check=True)
    args.binary = os.path.abspath(args.binary or f"{ROOT}/target/release/tautline")
    return args


class Process:
    """A child whose log lines are kept, each with the moment it came, and can be waited for."""

    def __init__(self, name, args, env=None):
        self.name, self.lines, self.times = name, [], []
        self.child = subprocess.Popen(args, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=env)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stderr:
            self.times.append(time.monotonic())
            self.lines.append(line.rstrip())

    def wait_line(self, pattern, since=0, limit=20):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            for line in self.lines[since:]:
                match = re.search(pattern, line)
                if match:
                    return match
            time.sleep(0.005)
        raise SystemExit(f"{self.name}: no line like {pattern!r} in {limit} s; it said:\n" + "\n".join(self.lines[-20:]))

    def listening(self, what):
        return int(self.wait_line(rf'msg="?listening"? what={what} addr=\S*:(\d+)').group(1))

    def kill(self, how=signal.SIGKILL):
        if self.child.poll() is None:
            self.child.send_signal(how)
        self.child.wait()

    def fds(self):
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def rss_mib(self):
        with open(f"/proc/{self.child.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) / 1024

    def cpu_s(self):
        with open(f"/proc/{self.child.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Rig:
    """A server with mutual TLS towards its agents, and a Unix socket or (`tcp`) mutual TLS towards its clients."""

    def __init__(self, binary, tcp=False):
        self.binary, self.tcp, self.dir = binary, tcp, tempfile.mkdtemp(prefix="tautline-check-")
        self.sock, self.agents, self.port, self.front = f"{self.dir}/f.sock", [], 0, None
        self.certs = f"{self.dir}/c"
        subprocess.run([binary, "certs", self.certs], check=True, stdout=subprocess.DEVNULL)
        self.start_server()

    def server_args(self, port=0):
        c = self.certs
        cert = [f"--cluster-cert={c}/server.crt", f"--cluster-key={c}/server.key", f"--cluster-ca-cert={c}/ca.crt"]
        front = [f"--uds-name={self.sock}", "--server-port=0"]
        if self.tcp:
            front = [f"--server-cert={c}/server.crt", f"--server-key={c}/server.key", f"--server-ca-cert={c}/ca.crt",
                "--server-bind-address=127.0.0.1", f"--server-port={free_port()}"]
        return [self.binary, "server", *front, *cert, "--agent-bind-address=127.0.0.1", f"--agent-port={port}",
            "--health-bind-address=127.0.0.1", "--health-port=0", "--admin-port=0"]

    def start_server(self, port=0):
        self.server = Process("server", self.server_args(port))
        self.port = self.server.listening("agents")
        self.health, self.admin = self.server.listening("health"), self.server.listening("admin")
        if self.tcp:
            self.front = self.server.listening("frontends")

    def agent_args(self, name):
        c = self.certs
        return [self.binary, "agent", f"--ca-cert={c}/ca.crt", f"--agent-cert={c}/agent.crt", f"--agent-key={c}/agent.key",
            "--proxy-server-host=127.0.0.1", f"--proxy-server-port={self.port}", f"--agent-id={name}",
            "--health-server-host=127.0.0.1", "--health-server-port=0", "--admin-server-port=0"]

    def start_agent(self, name, before=()):
        """`before` stands before the command, as `unshare` does."""
        agent = Process(name, [*before, *self.agent_args(name)])
        self.agents.append(agent)
        return agent

    def agent_up(self, name, **more):
        agent = self.start_agent(name, **more)
        self.wait_agent(agent)
        return agent

    def wait_agent(self, agent, since=0, limit=20):
        agent.wait_line(r'msg="link up"', since, limit)
        agent.health, agent.admin = agent.listening("health"), agent.listening("admin")

    def status(self, port=None):
        with urllib.request.urlopen(f"http://127.0.0.1:{port or self.admin}/status", timeout=5) as answer:
            return json.load(answer)

    def wait_status(self, want, limit=10, port=None):
        """Waits until `want` holds; returns how long it took, or None."""
        begin = time.monotonic()
        while time.monotonic() - begin < limit:
            if want(self.status(port)):
                return time.monotonic() - begin
            time.sleep(0.02)
        return None

    def connect(self):
        """A client's connection to the frontend, before its CONNECT."""
        client = socket.socket(socket.AF_INET if self.tcp else socket.AF_UNIX)
        client.settimeout(30)
        client.connect(("127.0.0.1", self.front) if self.tcp else self.sock)
        if self.tcp:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client = tls_context(self.certs, "client").wrap_socket(client, server_hostname="localhost")
        return client

    def dial(self, port, early=b"", head=True, host="127.0.0.1"):
        client = self.connect()
        client.sendall(b"CONNECT %s:%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % (host.encode(), port) + early)
        if head:
            got = client.recv(65536)
            if got != HEAD:
                client.close()
                raise IOError(f"answer {got[:80]!r}")
        return client

    def end(self):
        for process in self.agents + [self.server]:
            process.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


def tls_context(certs, who):
    """How `who` (client, agent) of the development certificates connects."""
    context = ssl.create_default_context(cafile=f"{certs}/ca.crt")
    context.load_cert_chain(f"{certs}/{who}.crt", f"{certs}/{who}.key")
    return context


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def target(handler, backlog=1024, rcvbuf=0):
    """A TCP listener on loopback; each connection gets a thread."""
    listener = socket.socket()
    if rcvbuf:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
    listener.bind(("127.0.0.1", 0))
    listener.listen(backlog)

    def one(conn):
        with conn:
            try:
                handler(conn)
            except OSError:
                pass

    def accept():
        while True:
            conn, _ = listener.accept()
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=one, args=(conn,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def echo(conn):
    while data := conn.recv(65536):
        conn.sendall(data)


def read_all(sock):
    data = bytearray()
    while chunk := sock.recv(262144):
        data += chunk
    return bytes(data)


class BlackHole:
    """A listener whose backlog is full: the kernel drops each further SYN."""

    def __init__(self):
        self.hole = socket.socket()
        self.hole.bind(("127.0.0.1", 0))
        self.hole.listen(0)
        self.port = self.hole.getsockname()[1]
        self.fill = [socket.socket() for _ in range(4)]
        for sock in self.fill:
            sock.setblocking(False)
            sock.connect_ex(self.hole.getsockname())

    def close(self):
        for sock in [*self.fill, self.hole]:
            sock.close()


class Watch:
    """The most resident memory that each process had while it was watched, in MiB."""

    def __init__(self, *processes):
        self.processes, self.most = processes, [0.0] * len(processes)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def look(self):
        self.most = [max(most, process.rss_mib()) for most, process in zip(self.most, self.processes)]

    def run(self):
        while not self.stop.wait(0.05):
            self.look()

    def end(self):
        self.stop.set()
        self.thread.join()
        self.look()
        return self.most

    def text(self):
        return ", ".join(f"{process.name} {most:.1f}" for process, most in zip(self.processes, self.most)) + " MiB"


def percentile(values, share):
    """The value that `share` (0 to 1) of them do not pass."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
