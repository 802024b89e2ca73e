//! Simulated controller: three tiers, a dozen volumes, a plan of three moves and a job in progress. It records all
//! orders.

#![allow(dead_code)] // every test uses a part of it

pub mod browser;
pub mod http;
pub mod views;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use controller::{
    Certificate, Clock, Limits, ReloadedConfig, Reloader, RunningServer, StartError, TcpSettings,
};
use manager::question::{Actor, Answer, Done, Question, Refusal};
use manager::service::{MessageRefusal, Now, Service, TokenTerm};
use manager::settings::{ManagerConfig, Settings};
use manager::view::{
    CountersView, EventKind, EventView, JobView, MoveState, OutcomeView, PlanView, ResponseView,
    StatusView, TierView, VolumeView,
};
use manager::wire::{JobsReport, Orders, PROTOCOL, Register, Welcome, WindowReport, WireRefusal};
use units::Nanos;

/// Secrets of sufficient length, one per role.
pub const READ: &str = "read-0123456789abcdef";
pub const OPERATE: &str = "operate-0123456789abcdef";
pub const ADMIN: &str = "admin-0123456789abcdef";
pub const AGENT: &str = "agent-0123456789abcdef";

pub struct Fake {
    pub status: StatusView,
    pub tiers: Vec<TierView>,
    pub volumes: Vec<VolumeView>,
    pub plan: PlanView,
    pub jobs: Vec<JobView>,
    pub outcomes: Vec<OutcomeView>,
    pub responses: Vec<ResponseView>,
    pub events: Vec<EventView>,
    pub counters: CountersView,
    /// Orders with their actors.
    pub orders: Vec<(String, Question)>,
    /// Actors of all calls.
    pub actors: Vec<String>,
    /// Receives a message for each query. The answer is sent after a message from the other end.
    pub gate: Option<(Sender<()>, Receiver<()>)>,
    /// True if the store fails.
    pub failing: bool,
    /// Reason for which a reloaded configuration is rejected.
    pub refuses_reload: Option<String>,
    pub ticks: u64,
    sessions: BTreeMap<String, (u64, u64)>,
    /// Number of volumes in each accepted report.
    pub reports: Vec<usize>,
    asked_events: u64,
    pub terms: Vec<TokenTerm>,
    pub token_changes: Vec<String>,
    pub refusals: Vec<String>,
}

impl Fake {
    pub fn new(volumes: usize) -> Self {
        Self {
            status: views::status(volumes as u32),
            tiers: views::tiers(),
            volumes: (0..volumes).map(views::volume).collect(),
            plan: views::plan(),
            jobs: views::jobs(),
            outcomes: views::outcomes(),
            responses: views::responses(),
            events: views::events(),
            counters: views::counters(volumes),
            orders: vec![],
            actors: vec![],
            gate: None,
            failing: false,
            refuses_reload: None,
            ticks: 0,
            sessions: BTreeMap::new(),
            reports: vec![],
            asked_events: 0,
            terms: vec![],
            token_changes: vec![],
            refusals: vec![],
        }
    }

    pub fn shared(self) -> Arc<Mutex<Fake>> {
        Arc::new(Mutex::new(self))
    }

    fn volume(&self, name: &str) -> Result<&VolumeView, Refusal> {
        let bare = name.strip_prefix("alpha/").unwrap_or(name);
        let found = self.volumes.iter().find(|v| v.name == bare);
        found.ok_or_else(|| Refusal::NotFound(format!("there is no volume {name:?}")))
    }

    fn order(&mut self, actor: &Actor, question: Question) -> Result<Answer, Refusal> {
        match &question {
            Question::Apply(choice) | Question::Reject(choice) => {
                if choice.generation != self.plan.generation {
                    let words = format!("plan {} is not the newest", choice.generation);
                    return Err(Refusal::Conflict(words));
                }
                let chosen = |p: u32| choice.moves.as_ref().is_none_or(|m| m.contains(&p));
                let apply = matches!(question, Question::Apply(_));
                for planned in self.plan.moves.iter_mut().filter(|m| chosen(m.position)) {
                    planned.state = match apply {
                        true => MoveState::Approved,
                        false => MoveState::Ended {
                            why: format!("rejected by {}", actor.0),
                        },
                    };
                }
            }
            Question::Pause => self.status.paused = true,
            Question::Resume => self.status.paused = false,
            Question::CancelJob { job, .. } if self.jobs.iter().all(|j| j.job != *job) => {
                return Err(Refusal::NotFound(format!("there is no job {job}")));
            }
            Question::Pin { volume, .. } | Question::Throttle { volume, .. } => {
                self.volume(volume)?;
            }
            _ => {}
        }
        self.orders.push((actor.0.clone(), question));
        let message = format!("done for {}", actor.0);
        Ok(Answer::Done(Done { message }))
    }

    /// Event whose text has the number of queries for events, so that each refresh changes the page.
    fn events_asked(&mut self) -> Vec<EventView> {
        self.asked_events += 1;
        let mut events = self.events.clone();
        events.push(EventView {
            id: 1000 + self.asked_events,
            at_ns: 0,
            unix_ms: 1_770_000_000_000,
            kind: EventKind::Controller,
            actor: "controller".into(),
            host: None,
            volume: None,
            text: format!("events were asked for {} times", self.asked_events),
            failed_io: None,
        });
        events
    }
}

impl Service for Fake {
    fn register(
        &mut self,
        now: Now,
        host: &str,
        message: Register,
    ) -> Result<Welcome, MessageRefusal> {
        if message.protocol != PROTOCOL {
            let theirs = message.protocol;
            return Err(MessageRefusal::Wire(WireRefusal::Protocol { theirs }));
        }
        self.sessions.insert(host.into(), (message.session, 0));
        Ok(Welcome {
            protocol: PROTOCOL,
            at_ns: now.at.0,
            window_ns: 5_000_000_000,
            objectives: vec![views::objective()],
            policy: None,
            detail: manager::wire::Detail::Volumes,
        })
    }

    fn report(
        &mut self,
        now: Now,
        host: &str,
        message: WindowReport,
    ) -> Result<Orders, MessageRefusal> {
        let known = self.sessions.get_mut(host);
        let Some((session, last)) = known.filter(|(s, _)| *s == message.session) else {
            return Err(MessageRefusal::Wire(WireRefusal::Register));
        };
        if message.seq <= *last {
            let last_seq = *last;
            return Err(MessageRefusal::Wire(WireRefusal::Stale { last_seq }));
        }
        *last = message.seq;
        self.reports.push(message.volumes.len());
        Ok(views::orders(*session, message.seq, now.at.0))
    }

    fn jobs_ended(
        &mut self,
        now: Now,
        host: &str,
        message: JobsReport,
    ) -> Result<Orders, MessageRefusal> {
        let Some((session, _)) = self.sessions.get(host) else {
            return Err(MessageRefusal::Wire(WireRefusal::Register));
        };
        self.reports.push(message.jobs.len());
        Ok(views::orders(*session, message.seq, now.at.0))
    }

    fn tick(&mut self, _: Now) {
        self.ticks += 1;
    }

    fn reload(&mut self, _: Now, actor: &Actor, settings: Settings) -> Result<Done, Refusal> {
        self.actors.push(actor.0.clone());
        if let Some(why) = &self.refuses_reload {
            return Err(Refusal::Invalid(why.clone()));
        }
        let message = format!("strategy {}", settings.words.strategy);
        Ok(Done { message })
    }

    fn set_tokens(&mut self, _: Now, terms: Vec<TokenTerm>) {
        self.terms = terms;
    }

    fn tokens_changed(&mut self, _: Now, _: &Actor, text: String) {
        self.token_changes.push(text);
    }

    fn refused(&mut self, _: Now, text: String) {
        self.refusals.push(text);
    }

    fn ask(&mut self, now: Now, actor: &Actor, question: Question) -> Result<Answer, Refusal> {
        if let Some((asked, answer)) = &self.gate {
            asked.send(()).unwrap();
            answer.recv().unwrap();
        }
        self.actors.push(actor.0.clone());
        if self.failing {
            return Err(Refusal::Unavailable("the store cannot be written".into()));
        }
        Ok(match question {
            Question::Status => {
                self.status.at_ns = now.at.0;
                Answer::Status(Box::new(self.status.clone()))
            }
            Question::Tiers => Answer::Tiers(self.tiers.clone()),
            Question::Volumes => Answer::Volumes(self.volumes.clone()),
            Question::Volume { volume } => Answer::Volume(Box::new(self.volume(&volume)?.clone())),
            Question::History { volume, last_ns } => {
                Answer::History(views::history(&self.volume(&volume)?.name, last_ns))
            }
            Question::Plan { host, generation } => {
                let other = host.is_some_and(|h| h != self.plan.host);
                if other || generation.is_some_and(|g| g != self.plan.generation) {
                    return Err(Refusal::NotFound("there is no such plan".into()));
                }
                Answer::Plan(Box::new(self.plan.clone()))
            }
            Question::Jobs { limit } => Answer::Jobs(first(&self.jobs, limit)),
            Question::Events { .. } => Answer::Events(self.events_asked()),
            Question::Outcomes { limit } => Answer::Outcomes(first(&self.outcomes, limit)),
            Question::Responses { limit } => Answer::Responses(first(&self.responses, limit)),
            Question::Why { volume } => Answer::Why(Box::new(views::why(self.volume(&volume)?))),
            Question::WhyNot { volume, tier } => {
                Answer::WhyNot(Box::new(views::why_not(self.volume(&volume)?, &tier)))
            }
            Question::Place(asked) => Answer::Place(Box::new(views::place(&asked))),
            Question::ExportFacts { .. } => Answer::Text("# facts\nseed = 1\n".into()),
            Question::Counters => Answer::Counters(Box::new(self.counters.clone())),
            order => self.order(actor, order)?,
        })
    }
}

fn first<T: Clone>(all: &[T], most: usize) -> Vec<T> {
    all.iter().take(most).cloned().collect()
}

/// Running server of a simulated controller.
pub struct World {
    pub fake: Arc<Mutex<Fake>>,
    pub dir: tempfile::TempDir,
    pub running: RunningServer,
}

pub fn clock() -> Clock {
    let unix_ms = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |t| t.as_millis() as u64)
    };
    let start = unix_ms();
    Arc::new(move || {
        let unix_ms = unix_ms();
        // The clock starts after an hour, so there is a history.
        let at = Nanos((3_600_000 + unix_ms.saturating_sub(start)) * 1_000_000);
        Now { at, unix_ms }
    })
}

impl World {
    pub fn start(fake: Fake) -> Self {
        Self::with_limits(fake, Limits::default())
    }

    pub fn with_limits(fake: Fake, limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fake = fake.shared();
        std::fs::write(dir.path().join(CONFIG), "").unwrap();
        let settings = ServerSettings {
            limits,
            reload: Some(reloader(dir.path())),
            ..settings(dir.path())
        };
        let running = start(fake.clone(), settings).unwrap();
        Self { fake, dir, running }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("controller.sock")
    }

    pub fn certificate(&self) -> PathBuf {
        self.dir.path().join("controller.crt")
    }

    /// Returns a client at the unix socket.
    pub fn local(&self) -> client::Client {
        self.local_at(client::Address::Unix(self.socket()))
    }

    /// Returns a client at another unix socket.
    pub fn local_at(&self, address: client::Address) -> client::Client {
        client::Client::new(address, None, client::TlsTrust::Nothing).unwrap()
    }

    pub fn url(&self) -> client::Address {
        let address = self.running.address().unwrap();
        format!("https://{address}").parse().unwrap()
    }

    /// Returns a client over TLS that trusts the certificate by its fingerprint.
    pub fn remote(&self, secret: &str) -> client::Client {
        self.remote_at(self.url(), secret)
    }

    /// Returns a client over TLS at another address.
    pub fn remote_at(&self, url: client::Address, secret: &str) -> client::Client {
        let trust = client::TlsTrust::Fingerprint(self.running.fingerprint().unwrap());
        let token = client::Token::new(secret).unwrap();
        client::Client::new(url, Some(token), trust).unwrap()
    }

    pub fn orders(&self) -> Vec<(String, Question)> {
        self.fake.lock().unwrap().orders.clone()
    }
}

/// Name of the configuration file that is reloaded.
pub const CONFIG: &str = "terrace.toml";

/// Reads [`CONFIG`] in a directory. The paths of tokens and certificate are unchanged.
fn reloader(dir: &Path) -> Reloader {
    let dir = dir.to_owned();
    Reloader::new(move || {
        let invalid = |e: &dyn std::fmt::Display| Refusal::Invalid(e.to_string());
        let text = std::fs::read_to_string(dir.join(CONFIG)).map_err(|e| invalid(&e))?;
        let read = config::read::<ManagerConfig>(CONFIG, &text);
        let (words, text) = read.map_err(|e| invalid(&e))?;
        let settings = Settings::new(text, words).map_err(|e| invalid(&e))?;
        let tcp = Some(tcp(&dir));
        Ok(ReloadedConfig { settings, tcp })
    })
}

fn tcp(dir: &Path) -> TcpSettings {
    TcpSettings {
        listen: "127.0.0.1:0".parse().unwrap(),
        tokens: dir.join("tokens"),
        certificate: Certificate::SelfSigned {
            directory: dir.into(),
        },
    }
}

/// Settings of a server.
#[derive(Clone)]
pub struct ServerSettings {
    pub socket: PathBuf,
    pub tcp: Option<TcpSettings>,
    pub limits: Limits,
    pub reload: Option<Reloader>,
}

/// Starts a server with the configured listeners.
pub fn start(
    service: Arc<Mutex<dyn Service + Send>>,
    settings: ServerSettings,
) -> Result<RunningServer, StartError> {
    let mut running = RunningServer::start(service, clock(), settings.limits, settings.reload)?;
    if let Some(tcp) = &settings.tcp {
        running.listen_tls(tcp)?;
    }
    running.listen_unix(&settings.socket)?;
    Ok(running)
}

/// Returns settings with a socket and a port in a directory, and a token for every role.
pub fn settings(dir: &Path) -> ServerSettings {
    let tokens = dir.join("tokens");
    let lines = format!(
        "# made up\nread reader {READ}\noperate operator {OPERATE}\nadmin root {ADMIN}\nagent alpha {AGENT}\n"
    );
    private(&tokens, &lines);
    ServerSettings {
        socket: dir.join("controller.sock"),
        tcp: Some(tcp(dir)),
        limits: Limits::default(),
        reload: None,
    }
}

pub fn private(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Returns the error of a start that must fail.
pub fn refused(settings: ServerSettings) -> StartError {
    let fake = Fake::new(1).shared();
    match start(fake, settings) {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    }
}
