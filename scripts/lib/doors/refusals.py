"""What it says when it cannot start: one line that names the flag or the file and what to do, exit code 1."""

import os, re, shutil, socket, subprocess, tempfile

from checks import Process, row


def refused(name, args, *parts):
    """`parts`: regular expressions that the text must match."""
    done = subprocess.run(args, capture_output=True, text=True, timeout=20)
    text = done.stderr.strip()
    missing = [part for part in parts if not re.search(part, text)]
    row(name, done.returncode == 1 and not missing, f"exit {done.returncode}: {text.splitlines()[-1] if text else 'nothing'}"
        + (f" (not said: {missing})" if missing else ""))


def check(binary, quick):
    home = tempfile.mkdtemp(prefix="tautline-refusals-")
    c, other, sock = f"{home}/c", f"{home}/other", f"{home}/f.sock"
    for path in (c, other):
        subprocess.run([binary, "certs", path], check=True, stdout=subprocess.DEVNULL)
    quiet = ["--agent-bind-address=127.0.0.1", "--health-bind-address=127.0.0.1", "--agent-port=0", "--health-port=0", "--admin-port=0"]

    def server(*more, uds=sock, cert=f"{c}/server.crt", key=f"{c}/server.key", ca=f"{c}/ca.crt"):
        front = [f"--uds-name={uds}", "--server-port=0"] if uds else []
        return [binary, "server", *front, *quiet, f"--cluster-cert={cert}", f"--cluster-key={key}", f"--cluster-ca-cert={ca}", *more]

    def agent(*more, cert=f"{c}/agent.crt", key=f"{c}/agent.key", ca=f"{c}/ca.crt"):
        return [binary, "agent", "--health-server-port=0", "--admin-server-port=0", f"--ca-cert={ca}",
            f"--agent-cert={cert}", f"--agent-key={key}", *more]

    live = None
    try:
        refused("an unknown flag, server", server("--no-such-flag"), "--no-such-flag", "[Uu]sage|--help")
        refused("an unknown flag, agent", agent("--agent_id=x"), "--agent_id", "--agent-id", "[Uu]sage|--help")
        for flag, args in (("--cluster-cert", server(cert=f"{home}/no.crt")), ("--cluster-key", server(key=f"{home}/no.key")),
                ("--cluster-ca-cert", server(ca=f"{home}/no.pem")), ("--ca-cert", agent(ca=f"{home}/no.pem")),
                ("--agent-key", agent(key=f"{home}/no.key"))):
            refused(f"a missing file: {flag}", args, flag, rf"{home}/no\.", "[Nn]o such file")
        refused("a token file that is missing", [binary, "agent", f"--ca-cert={c}/ca.crt", "--health-server-port=0",
            "--admin-server-port=0", f"--service-account-token-path={home}/no.token"], "--service-account-token-path", "[Nn]o such file")
        refused("the key is not that of the certificate, server", server(key=f"{other}/server.key"), "--cluster-key", "--cluster-cert")
        refused("the key is not that of the certificate, agent", agent(key=f"{other}/agent.key"), "--agent-key", "--agent-cert")
        refused("a certificate without its key", [binary, "agent", f"--ca-cert={c}/ca.crt", f"--agent-cert={c}/agent.crt"], "--agent-key")
        refused("a key in the place of the certificate", server(cert=f"{c}/server.key"), "--cluster-cert")
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            port = busy.getsockname()[1]
            for flag, args in (("--agent-port", server(f"--agent-port={port}")), ("--health-port", server(f"--health-port={port}")),
                    ("--admin-port", server(f"--admin-port={port}")), ("--health-server-port", agent("--health-server-host=127.0.0.1",
                    f"--health-server-port={port}"))):
                refused(f"a busy port: {flag}", args, flag, f"127.0.0.1:{port}", "in use")
        live = Process("server", server())
        live.listening("health")
        refused("the socket path belongs to a live server", server(), "--uds-name", re.escape(sock), "listens|running|in use")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(sock)
        row("... which goes on", live.child.poll() is None, "")
        plain = f"{home}/regular"
        with open(plain, "w") as file:
            file.write("precious")
        refused("the socket path is a regular file", server(uds=plain), "--uds-name", re.escape(plain), "not a socket|regular file")
        row("... which is left alone", open(plain).read() == "precious", "")
        long = home + "/" + "x" * (120 - len(home) - 1)
        refused("the socket path is 120 bytes long", server(uds=long), "--uds-name", r"\b107\b", "shorter|at most")
        refused("the folder of the socket is missing", server(uds=f"{home}/none/f.sock"), "--uds-name", re.escape(f"{home}/none"))
        refused("a port that Konnectivity refuses too", server("--agent-port=80"), "--agent-port", "1024", "49151")
    finally:
        if live:
            live.kill()
        shutil.rmtree(home, ignore_errors=True)
