"""Debian's curl through the TCP frontend: mutual TLS to the proxy, a plain and a TLS target, large bodies both ways."""

import hashlib, http.server, os, ssl, subprocess, threading, time

from checks import Rig, Watch, row


def web(block, count, tls=None):
    """A web server that sends and takes `count` blocks; what it took is in `.taken` as SHA-256."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(block) * count))
            self.end_headers()
            for _ in range(count):
                self.wfile.write(block)

        def do_PUT(self):
            if self.headers.get("Expect"):
                self.send_response_only(100)
                self.end_headers()
            digest, left = hashlib.sha256(), int(self.headers["Content-Length"])
            while left:
                chunk = self.rfile.read(min(left, len(block)))
                left -= len(chunk)
                digest.update(chunk)
            self.server.taken = digest.hexdigest()
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def handle_expect_100(self):
            return True

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.taken = True, None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{tls}/server.crt", f"{tls}/server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def run(rig, url, *more):
    """curl's whole output goes through SHA-256; returns it and what curl complained of."""
    c = rig.certs
    command = ["curl", "-sS", "--fail", "--max-time", "300", "--proxytunnel", "-x", f"https://localhost:{rig.front}",
        "--proxy-cacert", f"{c}/ca.crt", "--proxy-cert", f"{c}/client.crt", "--proxy-key", f"{c}/client.key",
        "--cacert", f"{c}/ca.crt", *more, url]
    child, digest = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE), hashlib.sha256()
    while chunk := child.stdout.read(1 << 20):
        digest.update(chunk)
    error = child.stderr.read().decode().strip()
    return digest.hexdigest(), error if child.wait() == 0 else error or f"exit code {child.returncode}"


def check(binary, quick):
    rig = Rig(binary, tcp=True)
    try:
        agent = rig.agent_up("a1")
        block, count = os.urandom(1 << 20), 64 if quick else 1024
        want, path = hashlib.sha256(), f"{rig.dir}/body"
        with open(path, "wb") as body:
            for _ in range(count):
                want.update(block)
                body.write(block)
        watch = Watch(rig.server, agent)
        for name, server, url in (
            ("http", web(block, count), "http://127.0.0.1:{}/"),
            ("https", web(block, count, tls=rig.certs), "https://localhost:{}/"),
        ):
            url, begin = url.format(server.server_port), time.monotonic()
            down, error = run(rig, url)
            row(f"curl, HTTPS proxy, {name} target: {count} MiB down, SHA-256 equal", down == want.hexdigest() and not error,
                error or f"{time.monotonic() - begin:.1f} s")
            begin = time.monotonic()
            _, error = run(rig, url, "-T", path)
            row(f"curl, HTTPS proxy, {name} target: {count} MiB up, SHA-256 equal", server.taken == want.hexdigest() and not error,
                error or f"{time.monotonic() - begin:.1f} s")
            server.shutdown()
        row("resident memory during it below 32 MiB", max(watch.end()) < 32, watch.text())
        _, error = run(rig, "http://127.0.0.1:9/")
        row("a target that refuses: curl shows the 502", "502" in error, error)
    finally:
        rig.end()
