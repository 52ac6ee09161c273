//! Tests network access of a call: through docket to listed hosts, and nowhere else, with every
//! backend.

use std::sync::Arc;

use docket_schema::{
    policy::{AllowList, NetworkPolicy},
    tool::NetworkActivity,
};

use super::{servers, *};

fn spec_with_network(hosts: &[String], line: &str) -> CommandSpec {
    let network = NetworkPolicy { hosts: hosts.to_vec(), ..NetworkPolicy::default() };
    CommandSpec { network: AllowList::from_policies([&network]).map(Arc::new), ..shell_spec(line) }
}

async fn run_with_network(sandbox: &Sandbox, spec: CommandSpec) -> (String, NetworkActivity) {
    let out = sandbox.run(spec).await.unwrap();
    let said = to_text(&[out.stdout.bytes, out.stderr.bytes].concat());
    (said, out.network.expect("it had the network"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_allowed_servers_are_reached_through_the_proxy() {
    if !has_program("curl") {
        return;
    }
    let (server, asked) = servers::start_http_server().await;
    let (other, others) = servers::start_http_server().await;
    let (by_tls, tls_asked) = servers::start_tls_server();
    let fixture = SandboxFixture::new();
    let hosts = [server.to_string(), by_tls.to_string(), format!("localhost:{}", other.port())];
    let line = format!(
        "curl -sS http://{server}/x -d body; curl -sS --insecure https://{by_tls}/y; \
         curl -sS -o /dev/null -w '%{{http_code}} other port\\n' http://{other}/; \
         curl -sS -x \"$HTTP_PROXY\" --noproxy '' -o /dev/null -w '%{{http_code}} localhost\\n' http://localhost:{}/; \
         curl -sS --noproxy '*' -m 5 http://{server}/ || echo not without; \
         curl -sS --insecure -m 5 --connect-to evil.example:443:{by_tls} https://evil.example/ || echo not as another; \
         (exec 3<>/dev/tcp/{}/{}) 2>/dev/null || echo not raw; echo offline=$CARGO_NET_OFFLINE no=$NO_PROXY",
        other.port(),
        server.ip(),
        server.port(),
    );
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        let (said, seen) = run_with_network(&sandbox, spec_with_network(&hosts, &line)).await;
        for words in [
            &format!("POST /x at {server} with 4 bytes, 0 of the proxy's\n"),
            "by TLS\n",
            "403 other port\n",
            "403 localhost\n",
            "not without\n",
            "not as another\n",
            "not raw\n",
            "offline= no=localhost,::1\n",
        ] {
            assert!(said.contains(words), "{backend:?}: {words:?} in {said}");
        }
        let places: Vec<&str> = seen.reached.iter().map(|one| one.place.as_str()).collect();
        assert_eq!(places, [server.to_string(), by_tls.to_string()], "{backend:?} {seen:?}");
        let refused: Vec<&str> = seen.refused.iter().map(|one| one.place.as_str()).collect();
        assert!(refused.contains(&other.to_string().as_str()), "{backend:?} {seen:?}");
        assert!(seen.refused.iter().any(|one| one.why == "TLS names evil.example within"), "{seen:?}");
        assert!(others.lock().unwrap().is_empty());
    }
    assert_eq!(asked.lock().unwrap().len(), sandboxed_backends().len());
    assert_eq!(tls_asked.lock().unwrap().len(), sandboxed_backends().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_grant_only_own_loopback_server_is_reachable() {
    if !has_program("curl") {
        return;
    }
    let (server, asked) = servers::start_http_server().await;
    let fixture = SandboxFixture::new();
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        let line = format!(
            "echo proxy=$HTTP_PROXY; curl -sS -m 5 http://{server}/ || echo no; echo $CARGO_NET_OFFLINE"
        );
        let out = sandbox.run(shell_spec(&line)).await.unwrap();
        assert_eq!(to_text(&out.stdout.bytes), "proxy=\nno\ntrue\n", "{backend:?}");
        assert_eq!(out.network, None);
        let argv = [own_binary().into_os_string(), probe::MARKER.into(), "loopback".into()];
        let own = CommandSpec { argv: argv.to_vec(), ..spec_with_network(&[server.to_string()], "") };
        let out = sandbox.run(own).await.unwrap();
        assert_eq!(
            (out.exit, out.network),
            (CommandExit::Exit(0), Some(NetworkActivity::default())),
            "{backend:?}"
        );
        // The command has no open descriptor of the proxy.
        let argv = [own_binary().into_os_string(), probe::MARKER.into(), "descriptors".into()];
        let own = CommandSpec { argv: argv.to_vec(), ..spec_with_network(&[server.to_string()], "") };
        assert_eq!(sandbox.run(own).await.unwrap().exit, CommandExit::Exit(0), "{backend:?}");
    }
    assert!(asked.lock().unwrap().is_empty());
}

/// A connection that is open when the call ends, by itself or at its timeout, ends with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_end_with_the_call() {
    let fixture = SandboxFixture::new();
    for backend in sandboxed_backends() {
        let sandbox = fixture.sandbox(backend).await;
        for (line, ended) in [("", CommandExit::Exit(0)), ("sleep 600", CommandExit::TimedOut)] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let place = listener.local_addr().unwrap();
            // A tunnel held open by a background process.
            let line = format!(
                "setsid bash -c 'exec 3<>/dev/tcp/${{HTTP_PROXY#http://127.0.0.1:}}; :' 2>/dev/null; \
                 port=${{HTTP_PROXY##*:}}; (exec 3<>/dev/tcp/127.0.0.1/$port; \
                 printf 'CONNECT {place} HTTP/1.1\\r\\n\\r\\n' >&3; read -r line <&3; echo \"$line\" >open; sleep 600) & \
                 while [ ! -s open ]; do sleep 0.05; done; cat open; rm open; {line}"
            );
            let spec = CommandSpec {
                timeout: Duration::from_millis(if ended == CommandExit::TimedOut { 3000 } else { 60_000 }),
                ..spec_with_network(&[place.to_string()], &line)
            };
            let call = tokio::spawn({
                let sandbox = sandbox.clone();
                async move { sandbox.run(spec).await.unwrap() }
            });
            let (mut far, _) = listener.accept().await.unwrap();
            let out = call.await.unwrap();
            assert_eq!(out.exit, ended, "{backend:?} {}", to_text(&out.stderr.bytes));
            assert!(to_text(&out.stdout.bytes).starts_with("HTTP/1.1 200 "), "{backend:?}");
            let mut rest = Vec::new();
            let read = tokio::io::AsyncReadExt::read_to_end(&mut far, &mut rest);
            let _ = tokio::time::timeout(Duration::from_secs(10), read).await.expect("it ended");
        }
    }
}
