//! What `deploy/` gives is what docket takes: units by systemd's own check, Kubernetes' kinds by Kubernetes' schemas, and
//! for all of them that names lead somewhere and that the binary takes the arguments that it is started with.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, StoreLocation, TestProgram, docket_binary, has_program, print_notice,
    run_program, run_with_input,
};
use serde_json::Value;

/// Seconds that must be left beyond a worker's own grace for its processes to end.
const BEYOND_GRACE_S: u64 = 30;

fn deploy_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's root").join("deploy")
}

/// How long a worker lets runs end their turn, as its source has it.
fn worker_grace_s() -> Result<u64> {
    let path = deploy_folder().join("../coordinator/cli/src/services/worker_supervisor.rs");
    let source = std::fs::read_to_string(path)?;
    let (_, rest) =
        source.split_once("const DRAIN_GRACE: Duration = Duration::from_secs(").context("the grace")?;
    Ok(rest.split_once(')').context("its end")?.0.parse()?)
}

/// Every document of every YAML file, which Kubernetes' schemas have been asked about; `None` where what asks them is
/// not there.
async fn kubernetes_documents() -> Result<Option<BTreeMap<String, Vec<Value>>>> {
    if !has_program("python3") {
        return Ok(None);
    }
    let folder = deploy_folder();
    let args = [folder.join("check.py").into_os_string(), folder.clone().into_os_string()];
    let ended = run_program(TestProgram::Python, &folder, &[], &args).await?;
    if ended.code() == Some(3) {
        let why = format!("skipped: {}; pip install pyyaml kubernetes-validate", ended.stderr.trim());
        ensure!(std::env::var_os("CI").is_none(), "CI needs it; .ci/run installs it: {why}");
        print_notice(&why);
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&ended.into_stdout()?)?))
}

/// Whether the binary takes these arguments: `--help` at the end is reached only if all before it are good.
async fn binary_accepts(args: &[String]) -> Result<bool> {
    let all: Vec<&str> = args.iter().map(String::as_str).chain(["--help"]).collect();
    let ended = run_program(TestProgram::Docket, &deploy_folder(), &[], &all).await?;
    ensure!(ended.success() || ended.code() == Some(2), "{ended:?}");
    Ok(ended.success())
}

fn string_list(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A flag's value.
fn flag_value<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).map(String::as_str)
}

#[tokio::test]
async fn systemd_units_are_valid_and_allow_time_to_drain() -> Result<()> {
    let probe = run_program(TestProgram::SystemdAnalyze, &deploy_folder(), &[], &["--version"]).await;
    if probe.is_err() {
        print_notice("skipped: no systemd-analyze here");
        ensure!(std::env::var_os("CI").is_none(), "CI needs systemd-analyze; .ci/run installs it");
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let binary = docket_binary().to_str().context("UTF-8")?;
    let mut seen = 0;
    for entry in std::fs::read_dir(deploy_folder().join("systemd"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(OsStr::to_str).context("a name")?;
        let text = std::fs::read_to_string(&path)?;
        let copy = scratch.path().join(name);
        // It asks whether the binary is there.
        let there = text.replace("/usr/local/bin/docket", binary);
        std::fs::write(&copy, &there)?;
        let verify = async || {
            let args: [&OsStr; 3] = ["verify".as_ref(), "--man=no".as_ref(), copy.as_os_str()];
            run_program(TestProgram::SystemdAnalyze, scratch.path(), &[], &args).await
        };
        let ended = verify().await?;
        ensure!(ended.success() && ended.stderr.is_empty(), "{name}: {ended:?}");
        // The check sees what is wrong.
        std::fs::write(&copy, there.replace("[Service]", "[Service]\nTimeoutStopSeconds=x"))?;
        ensure!(!verify().await?.stderr.is_empty(), "{name}: a word that systemd does not know");
        let starts = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/docket "));
        let args: Vec<String> = starts.context("it starts docket")?.split(' ').map(str::to_owned).collect();
        ensure!(binary_accepts(&args).await?, "{name}: {args:?}");
        if args[0] != "serve" {
            let stop = text.lines().find_map(|line| line.strip_prefix("TimeoutStopSec="));
            let stop: u64 = stop.context("a time to stop")?.parse()?;
            ensure!(stop >= worker_grace_s()? + BEYOND_GRACE_S, "{name}: {stop} s");
            ensure!(text.contains("KillMode=mixed"), "{name}: SIGTERM to all would end the runs at once");
            // Each of these would take the sandbox its namespaces, or its /proc.
            for forbidden in ["RestrictNamespaces=", "NoNewPrivileges=y", "PrivateUsers=", "ProtectProc="] {
                ensure!(!text.lines().any(|line| line.starts_with(forbidden)), "{name}: {forbidden}");
            }
        }
        seen += 1;
    }
    ensure!(seen == 3, "{seen} units");
    let nonsense = ["serve".to_owned(), "--no-such-flag".to_owned()];
    ensure!(!binary_accepts(&nonsense).await?, "arguments are looked at");
    Ok(())
}

/// What a selector wants is what the labels have.
fn selector_matches(selector: &Value, labels: &Value) -> bool {
    selector
        .as_object()
        .is_some_and(|wanted| !wanted.is_empty() && wanted.iter().all(|(k, v)| labels[k] == *v))
}

fn find_resource<'a>(all: &'a [&Value], kind: &str, name: &str) -> Option<&'a Value> {
    all.iter().copied().find(|one| one["kind"] == kind && one["metadata"]["name"] == name)
}

#[tokio::test]
async fn kubernetes_references_resolve_and_workers_have_time_to_drain() -> Result<()> {
    let Some(files) = kubernetes_documents().await? else { return Ok(()) };
    let all: Vec<&Value> = ["kubernetes/docket.yaml", "kubernetes/keda.yaml"]
        .into_iter()
        .flat_map(|file| files[file].iter())
        .collect();
    let deployments: Vec<&Value> = all.iter().copied().filter(|one| one["kind"] == "Deployment").collect();
    ensure!(deployments.len() == 2, "coordinator and worker");
    let namespace =
        find_resource(&all, "Namespace", "docket").context("a namespace")?["metadata"]["name"].clone();
    for one in all.iter().filter(|one| one["kind"] != "Namespace") {
        ensure!(one["metadata"]["namespace"] == namespace, "{one}");
    }
    let mut slots = BTreeMap::new();
    for deployment in &deployments {
        let name = deployment["metadata"]["name"].as_str().context("a name")?;
        let template = &deployment["spec"]["template"];
        let labels = &template["metadata"]["labels"];
        ensure!(
            selector_matches(&deployment["spec"]["selector"]["matchLabels"], labels),
            "{name}: its own pods"
        );
        let pod = &template["spec"];
        let [container] = pod["containers"].as_array().context("containers")?.as_slice() else {
            anyhow::bail!("{name}: one container")
        };
        let args = string_list(&container["args"]);
        ensure!(binary_accepts(&args).await?, "{name}: docket does not take {args:?}");
        for from in container["envFrom"].as_array().into_iter().flatten() {
            for (of, kind) in [("configMapRef", "ConfigMap"), ("secretRef", "Secret")] {
                if let Some(wanted) = from[of]["name"].as_str() {
                    ensure!(find_resource(&all, kind, wanted).is_some(), "{name}: no {kind} {wanted}");
                }
            }
        }
        let volumes: BTreeSet<&str> =
            pod["volumes"].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()).collect();
        let mounts = container["volumeMounts"].as_array().context("mounts")?;
        let mounted: BTreeSet<&str> = mounts.iter().filter_map(|one| one["name"].as_str()).collect();
        ensure!(volumes == mounted, "{name}: {volumes:?}, {mounted:?}");
        let ports: BTreeSet<&str> = container["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["name"].as_str())
            .collect();
        for probe in ["readinessProbe", "livenessProbe"] {
            if let Some(port) = container[probe]["httpGet"]["port"].as_str() {
                ensure!(ports.contains(port), "{name}: {probe} asks at {port}");
            }
        }
        if args[0] == "worker" {
            let grace = pod["terminationGracePeriodSeconds"].as_u64().context("a grace")?;
            ensure!(grace >= worker_grace_s()? + BEYOND_GRACE_S, "{name}: {grace} s");
            let count = flag_value(&args, "--slots").context("slots")?.to_owned();
            let queues = flag_value(&args, "--queues").context("queues")?.to_owned();
            slots.insert(name, (count, queues));
        } else {
            ensure!(deployment["spec"]["replicas"].as_u64() >= Some(2), "{name}: two at least");
            let listen = flag_value(&args, "--listen").context("an address")?;
            let port = container["ports"][0]["containerPort"].as_u64().context("a port")?;
            ensure!(listen == format!("0.0.0.0:{port}"), "{name}: {listen}, {port}");
        }
    }
    // Services, budgets and policies select somebody's pods.
    for one in &all {
        let selector = match one["kind"].as_str() {
            Some("Service") => &one["spec"]["selector"],
            Some("PodDisruptionBudget") => &one["spec"]["selector"]["matchLabels"],
            Some("NetworkPolicy") => &one["spec"]["podSelector"]["matchLabels"],
            _ => continue,
        };
        let of = deployments
            .iter()
            .find(|d| selector_matches(selector, &d["spec"]["template"]["metadata"]["labels"]));
        ensure!(of.is_some(), "{one} selects nobody");
    }
    check_scaler(&all, &slots)
}

/// The scaler asks a coordinator that is there for what is there, of the queue that the workers serve.
fn check_scaler(all: &[&Value], slots: &BTreeMap<&str, (String, String)>) -> Result<()> {
    let scaled = find_resource(all, "ScaledObject", "docket-worker").context("a scaler")?;
    let target = scaled["spec"]["scaleTargetRef"]["name"].as_str().context("its target")?;
    let (count, queue) = slots.get(target).with_context(|| format!("{target} is no worker"))?;
    let trigger = &scaled["spec"]["triggers"][0];
    let asks = &trigger["metadata"];
    ensure!(asks["targetValue"] == **count, "a worker takes {count}: {asks}");
    let url = asks["url"].as_str().context("an address")?;
    let service = find_resource(all, "Service", "docket").context("a service")?;
    let port = service["spec"]["ports"][0]["port"].as_u64().context("a port")?;
    ensure!(url == format!("http://docket.docket.svc.cluster.local:{port}/v1/queues/{queue}/load"), "{url}");
    let document = docket_coordinator::http::openapi_document();
    ensure!(document["paths"]["/v1/queues/{name}/load"]["get"].is_object(), "there is no such route");
    let wanted = docket_schema::api::QueueLoad { wanted: 1, running: 0, available: 1, oldest_available_s: 0 };
    let wanted = serde_json::to_value(wanted)?;
    ensure!(wanted[asks["valueLocation"].as_str().context("a place")?] == 1, "what runs counts as well");
    let hosts =
        &find_resource(all, "ConfigMap", "docket-coordinator").context("settings")?["data"]["DOCKET_HOSTS"];
    let host = url.trim_start_matches("http://").split(':').next().context("a host")?;
    ensure!(hosts.as_str().is_some_and(|hosts| hosts.split(',').any(|one| one == host)), "{host}: {hosts}");
    let authentication = trigger["authenticationRef"]["name"].as_str().context("an authentication")?;
    let authentication = find_resource(all, "TriggerAuthentication", authentication).context("is there")?;
    let secret = &authentication["spec"]["secretTargetRef"][0];
    let from =
        find_resource(all, "Secret", secret["name"].as_str().context("a name")?).context("its secret")?;
    ensure!(from["stringData"][secret["key"].as_str().context("a key")?].is_string(), "{secret}");
    Ok(())
}

#[tokio::test]
async fn compose_and_image_use_valid_arguments() -> Result<()> {
    let dockerfile = std::fs::read_to_string(deploy_folder().join("Dockerfile"))?;
    let built = dockerfile.lines().find_map(|line| line.strip_prefix("FROM rust:")).context("a compiler")?;
    let manifest = std::fs::read_to_string(deploy_folder().join("../Cargo.toml"))?;
    let version = built.split('-').next().context("a version")?;
    ensure!(manifest.contains(&format!("rust-version = \"{version}\"")), "the image has Rust {version}");
    ensure!(
        dockerfile.contains("USER 10001") && dockerfile.contains(r#"ENTRYPOINT ["/usr/local/bin/docket"]"#)
    );
    let Some(files) = kubernetes_documents().await? else { return Ok(()) };
    let [compose] = files["compose.yaml"].as_slice() else { anyhow::bail!("one document") };
    let services = compose["services"].as_object().context("services")?;
    for (name, service) in services {
        let networks = string_list(&service["networks"]);
        ensure!(networks.iter().all(|one| compose["networks"].get(one).is_some()), "{name}: {networks:?}");
        let needs = match &service["depends_on"] {
            Value::Object(needs) => needs.keys().cloned().collect(),
            list => string_list(list),
        };
        ensure!(needs.iter().all(|one| services.contains_key(one)), "{name}: {needs:?}");
        for volume in string_list(&service["volumes"]) {
            let of = volume.split(':').next().context("a volume")?;
            ensure!(compose["volumes"].get(of).is_some(), "{name}: {volume}");
        }
        if service["image"] == "docket" {
            let args = string_list(&service["command"]);
            ensure!(binary_accepts(&args).await?, "{name}: docket does not take {args:?}");
        }
    }
    ensure!(services["coordinator"]["deploy"]["replicas"] == 2);
    let stop = services["worker"]["stop_grace_period"].as_str().context("a time to stop")?;
    let stop: u64 = stop.trim_end_matches('s').parse()?;
    ensure!(stop >= worker_grace_s()? + BEYOND_GRACE_S, "{stop} s");
    let url = services["worker"]["environment"]["DOCKET_URL"].as_str().context("an address")?;
    let hosts = services["coordinator"]["environment"]["DOCKET_HOSTS"].as_str().context("its names")?;
    let listen = string_list(&services["coordinator"]["command"]);
    let port = flag_value(&listen, "--listen").and_then(|at| at.rsplit(':').next()).context("a port")?;
    ensure!(url == format!("http://{hosts}:{port}"), "{url}");
    check_rules(&files)
}

/// The expressions of Grafana's board, each as a rule that Prometheus can be asked about.
fn grafana_expressions() -> Result<Vec<String>> {
    let board: Value =
        serde_json::from_str(&std::fs::read_to_string(deploy_folder().join("grafana/docket.json"))?)?;
    let panels = board["panels"].as_array().context("panels")?;
    let (mut ids, mut taken, mut expressions) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for panel in panels {
        ensure!(ids.insert(panel["id"].as_u64()), "two panels are {}", panel["id"]);
        let at = |name: &str| panel["gridPos"][name].as_u64().context("a place");
        for (x, y) in (at("x")?..at("x")? + at("w")?).flat_map(|x| (0..64).map(move |y| (x, y))) {
            if (at("y")?..at("y")? + at("h")?).contains(&y) {
                ensure!(x < 24 && taken.insert((x, y)), "{} lies over another", panel["title"]);
            }
        }
        ensure!(panel["description"].as_str().is_some_and(|text| text.len() > 10), "{}", panel["title"]);
        for target in panel["targets"].as_array().context("targets")? {
            let expression = target["expr"].as_str().context("an expression")?;
            expressions.push(expression.replace("$__rate_interval", "5m").replace("$queue", ".*"));
        }
    }
    ensure!(expressions.len() >= 20 && !expressions.iter().any(|e| e.contains('$')), "{expressions:#?}");
    Ok(expressions)
}

/// Whether promtool is here; in CI it is.
async fn is_promtool_available() -> Result<bool> {
    if run_program(TestProgram::Promtool, &deploy_folder(), &[], &["--version"])
        .await
        .is_ok_and(|ended| ended.success())
    {
        return Ok(true);
    }
    print_notice("skipped: no promtool here (Debian's package prometheus)");
    ensure!(std::env::var_os("CI").is_none(), "CI needs it; .ci/run installs it");
    Ok(false)
}

#[tokio::test]
async fn prometheus_rules_board_and_metrics_are_valid() -> Result<()> {
    let expressions = grafana_expressions()?;
    let source =
        std::fs::read_to_string(deploy_folder().join("../coordinator/src/http/routes/admin/metrics.rs"))?;
    for expression in &expressions {
        check_series_exist(&source, expression)?;
    }
    if !is_promtool_available().await? {
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    for name in ["alerts.yml", "alerts_test.yml", "prometheus.yml"] {
        std::fs::copy(deploy_folder().join("prometheus").join(name), place.path().join(name))?;
    }
    let path = place.path().join("prometheus.yml");
    let token = place.path().join("docket.token");
    std::fs::write(&token, "x")?;
    let config =
        std::fs::read_to_string(&path)?.replace("/etc/prometheus/docket.token", &token.to_string_lossy());
    std::fs::write(&path, config)?;
    let rules = expressions
        .iter()
        .enumerate()
        .map(|(n, e)| serde_json::json!({ "record": format!("board:{n}"), "expr": e }));
    // JSON is YAML.
    let rules = serde_json::json!({ "groups": [{ "name": "board", "rules": rules.collect::<Vec<_>>() }] });
    std::fs::write(place.path().join("board.yml"), rules.to_string())?;
    for args in [["check", "config", "prometheus.yml"], ["check", "rules", "board.yml"]] {
        run_program(TestProgram::Promtool, place.path(), &[], &args).await?.into_stdout()?;
    }
    // The control: it does not take what is wrong.
    std::fs::write(place.path().join("wrong.yml"), rules.to_string().replace("sum(", "sum(("))?;
    ensure!(
        !run_program(TestProgram::Promtool, place.path(), &[], &["check", "rules", "wrong.yml"])
            .await?
            .success()
    );
    // Each alert fires when it should, and is silent when it should.
    let alerts = std::fs::read_to_string(place.path().join("alerts.yml"))?;
    let tested = std::fs::read_to_string(place.path().join("alerts_test.yml"))?;
    for name in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        ensure!(tested.matches(&format!("alertname: {name}")).count() >= 2, "no test of {name}");
    }
    let test_rules = ["test", "rules", "alerts_test.yml"];
    run_program(TestProgram::Promtool, place.path(), &[], &test_rules).await?.into_stdout()?;
    std::fs::write(place.path().join("alerts.yml"), alerts.replace("for: 30m", "for: 45m"))?;
    ensure!(
        !run_program(TestProgram::Promtool, place.path(), &[], &test_rules).await?.success(),
        "the control"
    );
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    drop(rustls::crypto::ring::default_provider().install_default());
    let http = reqwest::Client::builder().no_proxy().build()?;
    let url = format!("{}/metrics", coordinator.address());
    let told = http.get(url).bearer_auth(coordinator.token()).send().await?.text().await?;
    let linted =
        run_with_input(TestProgram::Promtool, place.path(), &[], &["check", "metrics"], told.as_bytes())
            .await?;
    linted.into_stdout().with_context(|| told.clone())?;
    let alone = ["docket_notification_deliveries", "docket_inbox_rows"];
    for (name, rest) in
        alone.into_iter().flat_map(|name| alerts.match_indices(name)).map(|(at, name)| (name, &alerts[at..]))
    {
        let selector = rest.split_inclusive('}').next().context("a selector")?;
        ensure!(told.contains(&format!("\n{selector} ")), "{name}: nobody tells {selector}");
    }
    Ok(())
}

/// Every series that an expression asks for is one that `/metrics` tells; how many it asks for.
fn check_series_exist(source: &str, expression: &str) -> Result<usize> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = expression.split(|c| !is_part(c)).filter(|word| word.starts_with("docket_"));
    let mut asked = 0;
    for name in names {
        let name = name.strip_suffix("_bucket").unwrap_or(name);
        ensure!(source.contains(&format!("\"{name}\"")), "{name} is told by nobody: {expression}");
        asked += 1;
    }
    Ok(asked)
}

/// Every series that a rule asks for is one that `/metrics` tells.
fn check_rules(files: &BTreeMap<String, Vec<Value>>) -> Result<()> {
    let source =
        std::fs::read_to_string(deploy_folder().join("../coordinator/src/http/routes/admin/metrics.rs"))?;
    let rules = files["prometheus/alerts.yml"][0]["groups"][0]["rules"].as_array().context("rules")?;
    let mut asked = 0;
    for rule in rules {
        let expression = rule["expr"].as_str().context("an expression")?;
        asked += check_series_exist(&source, expression)?;
        ensure!(rule["annotations"]["summary"].is_string(), "{rule}");
    }
    ensure!(asked >= 6, "{asked} series");
    let scrape = &files["prometheus/prometheus.yml"][0];
    ensure!(
        scrape["rule_files"][0] == "alerts.yml" && scrape["scrape_configs"][0]["authorization"].is_object()
    );
    Ok(())
}
