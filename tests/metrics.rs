//! The metrics of a session, scraped by a real Prometheus server.
//!
//! `UNWIND_PROMETHEUS` is the server's program; `cargo xtask test` provides it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use unwind_tests::{Case, Python, unwind, versions};

/// How long a server may take to start and to scrape.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn get(addr: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(addr).ok()?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {addr}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}

/// Asks until there is an answer.
fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> Result<T, String> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!("waited {PATIENCE:?} for {what}"))
}

/// The values of an instant query, by their labels.
fn query(server: SocketAddr, query: &str) -> Option<Vec<(Value, f64)>> {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let answer = get(server, &format!("/api/v1/query?query={encoded}"))?;
    let answer: Value = serde_json::from_str(&answer).ok()?;
    let results = answer["data"]["result"].as_array()?;
    let value = |result: &Value| result["value"][1].as_str()?.parse().ok();
    let found = results
        .iter()
        .map(|r| Some((r["metric"].clone(), value(r)?)));
    found
        .collect::<Option<Vec<_>>>()
        .filter(|found| !found.is_empty())
}

/// A process that burns CPU, and `unwind run` on it that serves its metrics.
fn session(
    python: &Python,
    folder: &std::path::Path,
) -> Result<(Running, Running, SocketAddr), String> {
    let mut command = python.program("burn.py");
    command
        .arg("forever")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut target = Running(command.spawn().map_err(|error| error.to_string())?);
    let mut line = String::new();
    let out = target.0.stdout.take().ok_or("no output")?;
    BufReader::new(out)
        .read_line(&mut line)
        .map_err(|error| error.to_string())?;

    let mut command = Command::new(unwind());
    command.args(["run", "--rate", "500", "--metrics", "127.0.0.1:0", "--pid"]);
    command
        .arg(target.0.id().to_string())
        .arg("-o")
        .arg(folder.join("x.folded"));
    let mut profiler = Running(
        command
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| e.to_string())?,
    );
    let mut errors = BufReader::new(profiler.0.stderr.take().ok_or("no standard error")?);
    let mut told = String::new();
    loop {
        let mut line = String::new();
        if errors
            .read_line(&mut line)
            .map_err(|error| error.to_string())?
            == 0
        {
            return Err(format!("the profiler tells no address: {told}"));
        }
        if let Some((_, rest)) = line.split_once("http://") {
            let addr = rest.trim().trim_end_matches("/metrics");
            let addr = addr.parse().map_err(|_| format!("no address: {line}"))?;
            // Keep the pipe open, so that the profiler can write to it.
            std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
            return Ok((target, profiler, addr));
        }
        told += &line;
    }
}

fn prometheus(
    program: &std::path::Path,
    folder: &std::path::Path,
    target: SocketAddr,
) -> Result<(Running, SocketAddr), String> {
    // The server cannot be told to take any free port and say which; this one was free just now.
    let addr = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    let addr = addr.map_err(|error| error.to_string())?;
    let config = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: unwind\n    \
         static_configs:\n      - targets: ['{target}']\n"
    );
    fs::write(folder.join("prometheus.yml"), config).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.arg(format!(
        "--config.file={}",
        folder.join("prometheus.yml").display()
    ));
    command.arg(format!(
        "--storage.tsdb.path={}",
        folder.join("data").display()
    ));
    command.arg(format!("--web.listen-address={addr}"));
    let log = fs::File::create(folder.join("log")).map_err(|error| error.to_string())?;
    command.stdout(Stdio::null()).stderr(log);
    let server = Running(command.spawn().map_err(|error| error.to_string())?);
    Ok((server, addr))
}

/// Names in the first column of the document's table of metrics.
fn listed() -> BTreeSet<String> {
    let document = include_str!("../unwind-user/METRICS.md");
    let cells = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `unwind_"));
    cells
        .filter_map(|rest| Some(format!("unwind_{}", rest.split_once('`')?.0)))
        .collect()
}

fn scrape(python: &Python, program: &std::path::Path) -> Result<(), String> {
    let name = format!("unwind-metrics-{}-{}", std::process::id(), python.label);
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let (_target, _profiler, addr) = session(python, &folder)?;
    if get(addr, "/else").is_some() {
        return Err("an unknown path is served".to_owned());
    }
    let (_server, server) = prometheus(program, &folder, addr)?;
    wait_for("a scrape with samples", || {
        query(server, "unwind_samples_total > 0")
    })?;
    // Some metrics are absent until there is CPU time to compare with, which there is now.
    let plain = get(addr, "/metrics").ok_or("no plain scrape")?;
    for metric in listed() {
        if !plain.contains(&format!("# TYPE {metric} ")) {
            return Err(format!("{metric} is in the document, but is not served"));
        }
        wait_for(&metric, || query(server, &metric))?;
    }
    // One moment's values: the scrape of all of them is one.
    let sums = wait_for("sums", || {
        query(
            server,
            "sum(unwind_interrupts_total) - sum(unwind_interrupts_total{outcome=~\"ok|truncated|page_fault|entering|incomplete|no_python_state|foreign_state|ring_full|attaching|no_scratch|moving|missed\"})",
        )
    })?;
    if sums.iter().any(|(_, difference)| *difference != 0.0) {
        return Err(format!("an outcome has no name in the document: {sums:?}"));
    }
    // Counts only grow, so what was shown by one scrape was interrupted by the next.
    let shown = wait_for("samples", || query(server, "unwind_samples_total"))?;
    let interrupts = wait_for("interrupts", || {
        query(server, "sum(unwind_interrupts_total)")
    })?;
    if shown.len() != 1 || shown[0].1 > interrupts[0].1 {
        return Err(format!("{shown:?} of {interrupts:?}"));
    }
    fs::remove_dir_all(&folder).map_err(|error| error.to_string())
}

#[test]
fn a_prometheus_server_gets_every_metric() {
    let program = std::env::var_os("UNWIND_PROMETHEUS").map(PathBuf::from);
    let mut failed = Vec::new();
    for python in versions() {
        let case = Case::new("metrics", &python.label, "prometheus");
        let Some(program) = &program else {
            case.skipped("no Prometheus server (UNWIND_PROMETHEUS)");
            continue;
        };
        match scrape(&python, program) {
            Ok(()) => case.ok(),
            Err(why) => {
                case.failed(&why);
                failed.push(why);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
