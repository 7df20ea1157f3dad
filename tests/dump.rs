//! `unwind dump` and the library behind it, against what programs say of themselves.

#[path = "truth/judge.rs"]
#[allow(dead_code, reason = "shared with the suite `truth`")]
mod judge;
#[path = "dump/moving.rs"]
mod moving;
#[path = "truth/program.rs"]
#[allow(dead_code, reason = "shared with the suite `truth`")]
mod program;
#[path = "dump/schema.rs"]
mod schema;

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use program::Program;
use serde_json::{Value, json};
use unwind_tests::{Python, pythons, unwind};

/// After this, what is waited for will not come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs one case of this suite for each interpreter; `Ok` says what was measured.
fn for_each(name: &str, case: impl Fn(&Python) -> Result<String, String>) {
    unwind_tests::for_each("dump", name, case);
}

fn dump(pid: u32, options: &[&str]) -> Output {
    let mut command = Command::new(unwind());
    command
        .args(["dump", "--pid", &pid.to_string()])
        .args(options);
    command.output().expect("unwind runs")
}

fn json_of(output: &Output) -> Result<Value, String> {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .map_err(|error| format!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Name, file, lines and columns of a frame, as `held.py` says them.
fn said(frame: &Value) -> Value {
    json!([
        frame["function"],
        frame["file"],
        frame["line"],
        frame["end_line"],
        frame["column"],
        frame["end_column"]
    ])
}

#[test]
fn every_place_is_what_the_program_says() {
    for_each("places", |python| {
        let mut command = python.program("held.py");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let held = held(&mut child);
        child.kill().ok();
        child.wait().ok();
        held
    });
}

fn held(child: &mut std::process::Child) -> Result<String, String> {
    use std::io::BufRead as _;
    let stdout = child.stdout.take().ok_or("no pipe")?;
    let mut stdin = child.stdin.take().ok_or("no pipe")?;
    let mut places = 0;
    for line in std::io::BufReader::new(stdout).lines() {
        let line = line.map_err(|error| error.to_string())?;
        let told: Value = serde_json::from_str(&line).map_err(|e| e.to_string())?;
        let expected = told["frames"].as_array().ok_or("no frames")?;
        if expected.is_empty() {
            return match places {
                // As many as there are below `places` in the program.
                39.. => Ok(format!("{places} places")),
                _ => Err(format!("only {places} places")),
            };
        }
        places += 1;
        let output = dump(child.id(), &["--json"]);
        let document = json_of(&output)?;
        let thread = &document["processes"][0]["threads"][0];
        let is_as_told = thread["incomplete"] == Value::Null
            && thread["main"] == json!(true)
            && thread["exception"] == told["exception"];
        if !is_as_told {
            return Err(format!(
                "place {places}: {thread}, but {}",
                told["exception"]
            ));
        }
        let frames = thread["frames"].as_array().ok_or("no frames")?;
        let (leaf, outer) = frames.split_first().ok_or("no frames")?;
        let outer: Vec<Value> = outer.iter().map(said).collect();
        // It may still be on its way to where it waits.
        if leaf["function"] != "hold" {
            return Err(format!("place {places}: innermost is {leaf}"));
        }
        if let Some((ours, theirs)) = outer.iter().zip(expected).find(|(a, b)| a != b) {
            return Err(format!("place {places}: {ours}, not {theirs}"));
        }
        if outer.len() != expected.len() {
            let (ours, theirs) = (outer.len(), expected.len());
            return Err(format!("place {places}: {ours} frames, not {theirs}"));
        }
        stdin.write_all(b"\n").map_err(|error| error.to_string())?;
    }
    Err(format!("the program ended after {places} places"))
}

#[test]
fn every_thread_of_a_crowd_is_there() {
    for_each("crowd", |python| {
        let program = Program::start(python, "held.py", &["threads", "300"])?;
        let ids = program.said.as_array().ok_or("no ids")?;
        let begun = Instant::now();
        let document = json_of(&dump(program.pid, &["--json"]))?;
        let took = begun.elapsed();
        let threads = document["processes"][0]["threads"]
            .as_array()
            .ok_or("no threads")?;
        let missing = ids.iter().find(|id| {
            let is_it = |thread: &&Value| thread["native_id"] == **id;
            let found = threads.iter().find(is_it);
            found.is_none_or(|thread| {
                let frames = thread["frames"].as_array();
                let outermost = frames.and_then(|frames| frames.last());
                let root = outermost.map(|frame| &frame["function"]);
                let main = thread["main"] == json!(true);
                thread["incomplete"] != Value::Null
                    || root
                        != Some(&json!(if main {
                            "<module>"
                        } else {
                            "Thread._bootstrap"
                        }))
            })
        });
        match missing {
            Some(id) => Err(format!("thread {id} is not whole")),
            None if threads.len() != ids.len() => Err(format!("{} threads", threads.len())),
            None => Ok(format!("{} threads in {took:?}", threads.len())),
        }
    });
}

#[test]
fn text_names_threads_and_source() {
    for_each("text", |python| {
        let program = Program::start(python, "held.py", &["threads", "2"])?;
        let text = || String::from_utf8_lossy(&dump(program.pid, &[]).stdout).into_owned();
        // It said that it is ready before it waits.
        let begun = Instant::now();
        let mut shown = text();
        while !shown.contains("        sys.stdin.readline()\n") && begun.elapsed() < PATIENCE {
            shown = text();
        }
        let wanted = [
            format!("Process {}: ", program.pid),
            format!("Thread {} ", program.pid),
            "main, sleeping".to_owned(),
            "Thread._bootstrap (".to_owned(),
            "        sys.stdin.readline()".to_owned(),
        ];
        match wanted.iter().find(|part| !shown.contains(part.as_str())) {
            Some(part) => Err(format!("no {part:?} in {shown}")),
            None => Ok(format!("{} lines", shown.lines().count())),
        }
    });
}

#[test]
fn a_shell_is_refused_and_its_child_is_shown() {
    for_each("children", |python| {
        let mut child = python.program("held.py");
        // A shell that is not replaced by its last command.
        let words = std::iter::once(child.get_program()).chain(child.get_args());
        let words: Vec<_> = words
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let script = format!("{} threads 1; exit 3", words.join(" "));
        child = Command::new("sh");
        child.args(["-c", &script]);
        child.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = child.spawn().map_err(|error| error.to_string())?;
        let mut line = String::new();
        let stdout = shell.stdout.take().ok_or("no pipe")?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line)
            .map_err(|error| error.to_string())?;
        let refused = dump(shell.id(), &[]);
        let shown = dump(shell.id(), &["--subprocesses", "--json"]);
        drop(shell.stdin.take());
        shell.wait().map_err(|error| error.to_string())?;
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        if refused.status.code() != Some(125) || !words.contains("runs no Python") {
            return Err(format!("{:?}: {words}", refused.status));
        }
        let document = json_of(&shown)?;
        match document["processes"].as_array().map(Vec::len) {
            Some(1) if shown.status.success() => Ok(words.trim().to_owned()),
            _ => Err(format!("{document}")),
        }
    });
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let python = pythons().into_iter().next().expect("an interpreter");
    let program = Program::start(&python, "held.py", &["threads", "100"]).expect("it starts");
    let mut command = Command::new(unwind());
    command.args(["dump", "--pid", &program.pid.to_string()]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unwind runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success(), "{:?}", output.status);
}

#[test]
fn modes_choose_threads() {
    for_each("modes", |python| {
        let program = Program::start(python, "held.py", &["modes"])?;
        let id = |what: &str| program.said[what].as_u64().ok_or("no id");
        let (main, spins, handles) = (id("main")?, id("spins")?, id("handles")?);
        // Until each is where it stays.
        let mut wrong = String::new();
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            wrong.clear();
            for (mode, wanted) in [
                ("all", vec![main, spins, handles]),
                ("cpu", vec![spins]),
                ("gil", vec![spins]),
                ("exception", vec![handles]),
            ] {
                let document = json_of(&dump(program.pid, &["--json", "--mode", mode]))?;
                let threads = document["processes"][0]["threads"].as_array();
                let threads = threads.ok_or("no threads")?.iter();
                let ids: Vec<_> = threads.filter_map(|t| t["native_id"].as_u64()).collect();
                if ids != wanted {
                    wrong = format!("{mode}: {ids:?}, not {wanted:?}");
                }
            }
            if wrong.is_empty() {
                return Ok("each its own".to_owned());
            }
        }
        Err(wrong)
    });
}
