"""File servers, version control, printing and scanning."""

from __future__ import annotations

import os
import struct
import subprocess

from exchanges.stage import HOST, command_each, daemon, dialogue, exchange, scratch, served, split


@exchange("smb")
def smb(port: int, count: int) -> None:
    with scratch() as folder:
        settings = folder / "smb.conf"
        places = "".join(
            f"{key} = {folder}\n" for key in ("private dir", "lock directory", "state directory", "cache directory",
                                              "pid directory", "ncalrpc dir")
        )  # fmt: skip
        settings.write_text(
            f"[global]\nsmb ports = {port}\n{places}map to guest = Bad User\ninterfaces = lo\nbind interfaces only = yes\n"
            f"log file = {folder}/log\nload printers = no\ndisable netbios = yes\n"
            f"[shop]\npath = {folder}/shop\nguest ok = yes\nwritable = yes\n"
        )
        (folder / "shop").mkdir(mode=0o777)
        (folder / "shop").chmod(0o777)
        client = ["smbclient", f"//{HOST}/shop", "-p", port, "-N", "-s", settings]
        with daemon(["smbd", "-F", "-s", settings], port):
            command_each(
                count, [*client, "-c", f"put {settings} o%N; ls; get o%N {folder}/back%N; mkdir d%N"]
            )


@exchange("nfs")
def nfs(port: int, count: int) -> None:
    """NFS 4 in ONC RPC: four bytes of a last-fragment bit and a length, then an id."""
    with scratch() as folder:
        settings = folder / "ganesha.conf"
        (folder / "shop").mkdir(mode=0o777)
        settings.write_text(
            f"NFS_CORE_PARAM {{ NFS_Port = {port}; Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; }}"
            f"\nNFSv4 {{ Graceless = true; RecoveryRoot = {folder}; Minor_Versions = 0; }}\n"
            f"EXPORT {{ Export_Id = 1; Path = {folder}/shop; Pseudo = /shop; Access_Type = RW; Squash = None;"
            f" SecType = sys; FSAL {{ Name = VFS; }} }}\n"
        )
        server = ["ganesha.nfsd", "-F", "-f", settings, "-L", folder / "log", "-p", folder / "pid"]
        with daemon(server, port):
            command_each(count, ["nfs-ls", f"nfs://{HOST}/shop?version=4&nfsport={port}"])


@exchange("onc-rpc")
def onc_rpc(port: int, count: int) -> None:
    """A port mapper behind a forwarder, which puts it on another port."""

    def call(id_: int, procedure: int) -> bytes:
        body = struct.pack(">IIIIII", id_, 0, 2, 100000, 2, procedure) + bytes(16)
        body += struct.pack(">IIII", 100000, 2, 6, 0) if procedure == 3 else b""
        return struct.pack(">I", 1 << 31 | len(body)) + body

    with daemon(["rpcbind", "-f", "-i"], 111), forwarder(port, 111):
        dialogue(port, count, [call(1, 0), call(2, 3), call(3, 4), call(4, 0)])


def forwarder(port: int, to: int):  # type: ignore[no-untyped-def]
    """Make a server of a fixed port answer on another one, too."""
    where = f"TCP-LISTEN:{port},bind={HOST},fork,reuseaddr,backlog=200"
    return daemon(["socat", where, f"TCP:{HOST}:{to}"], port)


@exchange("ftp")
def ftp(port: int, count: int) -> None:
    with scratch() as folder:
        settings = folder / "vsftpd.conf"
        (folder / "empty").mkdir()
        settings.write_text(
            f"listen=YES\nlisten_port={port}\nlisten_address={HOST}\nbackground=NO\nanonymous_enable=YES\n"
            f"anon_root={folder}/empty\nsecure_chroot_dir={folder}/empty\nrun_as_launching_user=YES\nseccomp_sandbox=NO\n"
            f"xferlog_enable=NO\n"
        )
        (folder / "empty").chmod(0o555)
        words = (b"USER anonymous", b"PASS x", b"SYST", b"FEAT", b"PWD", b"PASV", b"QUIT")
        with daemon(["vsftpd", settings], port):
            dialogue(port, count, [word + b"\r\n" for word in words], greeted=True)


@exchange("ssh")
def ssh(port: int, count: int) -> None:
    with scratch() as folder:
        key = folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", key], check=True)
        os.makedirs("/run/sshd", exist_ok=True)
        options = f"-oListenAddress={HOST} -oMaxStartups=300 -oHostKey={key} -oPidFile=none"
        with daemon(f"/usr/sbin/sshd -D -e -f /dev/null -p {port} {options}", port):
            trusting = "-F none -oBatchMode=yes -oStrictHostKeyChecking=no -oUserKnownHostsFile=/dev/null"
            command_each(count, f"ssh -p {port} {trusting} nobody@{HOST} true")


@exchange("ssh-agent")
def ssh_agent(port: int, count: int) -> None:
    """The agent's protocol (length of four bytes, type, body), reached over TCP as forwarders do."""

    def message(body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + body

    with scratch() as folder:
        key, door = folder / "key", folder / "agent"
        subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", "rsa", "-f", key], check=True)
        agent = subprocess.Popen(["ssh-agent", "-D", "-a", door], stdout=subprocess.DEVNULL)
        try:
            server = ["socat", f"TCP-LISTEN:{port},bind={HOST},fork,reuseaddr", f"UNIX-CONNECT:{door}"]
            with daemon(server, port):
                subprocess.run(
                    ["ssh-add", "-q", key], env={**os.environ, "SSH_AUTH_SOCK": str(door)}, check=True
                )
                asks = [b"\x0b", b"\x01", b"\x16\0\0\0\x01x", b"\x1b\0\0\0\x05query", b"\x0b"]
                dialogue(port, count, [message(ask) for ask in asks])
        finally:
            agent.terminate()
            agent.wait()


@exchange("rsync")
def rsync(port: int, count: int) -> None:
    with scratch() as folder:
        (folder / "shop").mkdir()
        (folder / "shop" / "orders").write_bytes(os.urandom(20_000))
        settings = folder / "rsyncd.conf"
        settings.write_text(f"use chroot = no\n[shop]\npath = {folder}/shop\nread only = yes\nuid = root\n")
        server = f"rsync --daemon --no-detach --port={port} --address={HOST} --config={settings}"
        with daemon(server, port):
            command_each(count, f"rsync -a rsync://{HOST}:{port}/shop/ {folder}/copy%N/")


@exchange("git")
def git(port: int, count: int) -> None:
    with scratch() as folder:
        work = folder / "shop"
        subprocess.run(["git", "init", "-q", work], check=True)
        commit = "-c user.name=x -c user.email=x@shop.test commit -q --allow-empty -m orders"
        subprocess.run(split(f"git -C {work} {commit}"), check=True)
        where = f"--listen={HOST} --port={port} --export-all --base-path={folder} --max-connections=0"
        with daemon(f"git daemon {where}", port):
            command_each(count, f"git clone -q git://{HOST}:{port}/shop {folder}/copy%N")


@exchange("subversion")
def subversion(port: int, count: int) -> None:
    with scratch() as folder:
        subprocess.run(["svnadmin", "create", folder / "shop"], check=True)
        with daemon(f"svnserve -d --foreground --listen-host {HOST} --listen-port {port} -r {folder}", port):
            command_each(count, f"svn info --non-interactive svn://{HOST}:{port}/shop")


@exchange("cvs")
def cvs(port: int, count: int) -> None:
    with scratch() as folder:
        subprocess.run(["cvs", "-d", folder / "shop", "init"], check=True)
        server = ["socat", f"TCP-LISTEN:{port},bind={HOST},fork,reuseaddr"]
        with daemon([*server, f"EXEC:cvs --allow-root={folder}/shop pserver"], port):
            opened = f"BEGIN AUTH REQUEST\n{folder}/shop\nanonymous\nA\nEND AUTH REQUEST\n".encode()
            dialogue(port, count, [opened, b"valid-requests\n"])


@exchange("iscsi")
def iscsi(port: int, count: int) -> None:
    with scratch() as folder:
        disk = folder / "disk"
        disk.write_bytes(bytes(1 << 20))
        control = ["tgtadm", "--lld", "iscsi", "--mode"]
        env = {**os.environ, "TGT_IPC_SOCKET": str(folder / "tgt")}
        with daemon(["tgtd", "-f", "--iscsi", f"portal={HOST}:{port}"], port, env):
            target = [*control, "target", "--op"]
            for words in (
                [*target, "new", "--tid", "1", "-T", "iqn.2024-01.test.shop:orders"],
                [*control, "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", str(disk)],
                [*target, "bind", "--tid", "1", "-I", "ALL"],
            ):
                subprocess.run(words, env=env, check=True, capture_output=True)
            command_each(count, ["iscsi-ls", "-s", f"iscsi://{HOST}:{port}"])


@exchange("nbd")
def nbd(port: int, count: int) -> None:
    def read(cookie: int, offset: int) -> bytes:
        return struct.pack(">IHHQQI", 0x25609513, 0, 0, cookie, offset, 512)

    with scratch() as folder:
        disk = folder / "disk"
        disk.write_bytes(bytes(1 << 20))
        settings = folder / "nbd.conf"
        settings.write_text(f"[generic]\nlistenaddr = {HOST}\nport = {port}\n[shop]\nexportname = {disk}\n")
        name = b"IHAVEOPT" + struct.pack(">II", 1, 4) + b"shop"
        words = [struct.pack(">I", 3), name, *(read(cookie, cookie * 512) for cookie in range(5))]
        with daemon(["nbd-server", "-d", "-C", settings, "-p", folder / "pid"], port):
            dialogue(port, count, words, greeted=True)


@exchange("ipp")
def ipp(port: int, count: int) -> None:
    """IPP in HTTP; CUPS has no such printer, and says so in IPP."""
    with scratch() as folder:
        names = ("ServerRoot", "StateDir", "RequestRoot", "CacheDir", "TempDir")
        for name in names:
            (folder / name).mkdir(mode=0o755)
        (folder / "files.conf").write_text("".join(f"{name} {folder}/{name}\n" for name in names))
        (folder / "cupsd.conf").write_text(
            f"Listen {HOST}:{port}\nBrowsing Off\n<Location />\nAllow all\n</Location>\n"
        )
        with daemon(f"cupsd -f -c {folder}/cupsd.conf -s {folder}/files.conf", port):
            url = f"ipp://{HOST}:{port}/printers/order%N"
            command_each(count, f"ipptool -tv -T 5 {url} get-printer-attributes.test")


# A scanner's words of four bytes: procedure, version, user.
served(
    "sane",
    "saned -l -p {port} -b {host} -u root",
    [struct.pack(">III", 0, 0x0100_0003, 5) + b"shop\0", struct.pack(">I", 1), struct.pack(">II", 2, 7) + b"test:0\0",
     struct.pack(">I", 10)],
)  # fmt: skip


@exchange("distcc")
def distcc(port: int, count: int) -> None:
    with scratch() as folder:
        source = b"int orders = 1;\n"
        words = [b"cc", b"-c", b"orders.c", b"-o", b"orders.o"]
        arguments = b"".join(b"ARGV%08x%s" % (len(word), word) for word in words)
        job = b"DIST00000001ARGC%08x" % len(words) + arguments
        where = f"-p {port} --listen {HOST} -a {HOST} --log-file {folder}/log"
        with daemon(f"distccd --daemon --no-detach --user nobody {where} --enable-tcp-insecure", port):
            dialogue(port, count, [job + b"DOTI%08x" % len(source) + source])
