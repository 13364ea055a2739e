//! Every bound in one file, with its unit and its reason (INV-11).
//!
//! A number that limits a queue, a size, a wait or a count is a constant here and nowhere else, so that
//! "is everything bounded?" is answered by reading one page.

use core::time::Duration;

use crate::shutdown::Share;

// What a caller submits.

/// Bytes of a payload: 1 MiB. Larger facts are fetched by the receiver, not pushed.
pub const PAYLOAD_BYTES: usize = 1024 * 1024;
/// Levels of nesting of a JSON payload. Deeper ones overflow the stacks of common receivers.
pub const PAYLOAD_DEPTH: usize = 128;
/// Bytes of the request that submits an event: the payload and its envelope.
pub const SUBMIT_BODY_BYTES: usize = PAYLOAD_BYTES + 128 * 1024;
/// Faults of a request that its refusal tells, the first ones: as many as an endpoint may have patterns.
pub const FAULTS_TOLD: usize = 100;
/// Bytes of any other request body.
pub const REQUEST_BODY_BYTES: usize = 1024 * 1024;
/// Bytes of a body over its limit that are still read, and thrown away, so that its sender sees the answer.
pub const DISCARDED_BODY_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of a payload's content type. The longest that are in use have less than half as many.
pub const CONTENT_TYPE_BYTES: usize = 255;
/// Characters of an event type.
pub const EVENT_TYPE_CHARS: usize = 128;
/// Parts of an event type.
pub const EVENT_TYPE_PARTS: usize = 8;
/// Pairs of metadata.
pub const METADATA_PAIRS: usize = 20;
/// Characters of a key of metadata.
pub const METADATA_KEY_CHARS: usize = 64;
/// Characters of a value of metadata.
pub const METADATA_VALUE_CHARS: usize = 500;
/// Headers that an event carries.
pub const EVENT_HEADERS: usize = 10;
/// Characters of a sender's own name for a thing (`uid`).
pub const UID_CHARS: usize = 128;
/// Characters of an idempotency key.
pub const IDEMPOTENCY_KEY_CHARS: usize = 255;
/// How long a key and a `uid` stand for the request that they first came with.
pub const IDEMPOTENCY_LIFE: Duration = Duration::from_hours(24);
/// How long a request may hold a key before it counts as crashed and the key is free again.
pub const IDEMPOTENCY_RUNNING: Duration = Duration::from_mins(1);
/// Bytes of method and path that a key may be given to; no path that exists is longer.
pub const IDEMPOTENCY_ROUTE_BYTES: usize = 512;
/// Bytes of an answer that is kept for its key. Answers of configuration have a few kilobytes.
pub const IDEMPOTENT_ANSWER_BYTES: usize = 1024 * 1024;

// What a tenant configures.

/// Bytes of an endpoint's URL, as given and as kept. Proxies and servers refuse longer ones.
pub const URL_BYTES: usize = 2048;
/// Characters of a description.
pub const DESCRIPTION_CHARS: usize = 500;
/// Characters of a name.
pub const NAME_CHARS: usize = 100;
/// Patterns of an endpoint.
pub const ENDPOINT_PATTERNS: usize = 100;
/// Custom headers of an endpoint.
pub const ENDPOINT_HEADERS: usize = 20;
/// Bytes of one custom header, name and value together.
pub const HEADER_BYTES: usize = 4096;
/// Endpoints of a tenant: matching walks them in memory.
pub const ENDPOINTS_PER_TENANT: usize = 10_000;
/// Old secrets that still sign beside the new one.
pub const OLD_SECRETS: usize = 5;
/// How long an old secret signs beside the new one, if nobody says otherwise.
pub const SECRET_OVERLAP_DEFAULT: Duration = Duration::from_hours(24);
/// How long it may at most.
pub const SECRET_OVERLAP_MAX: Duration = Duration::from_hours(7 * 24);
/// Characters of a secret that signs in the form of others.
pub const COMPAT_SECRET_CHARS: core::ops::RangeInclusive<usize> = 16..=256;
/// Characters of what the names of the signature's headers begin with.
pub const HEADER_PREFIX_CHARS: usize = 32;
/// Rows that are sealed anew in a statement.
pub const RESEAL_ROWS: i64 = 200;
/// The same of kept answers, each of up to [`IDEMPOTENT_ANSWER_BYTES`].
pub const RESEAL_ANSWERS: i64 = 8;
/// Statuses that an endpoint may call fatal: 400 to 599 without 408, 410 and 429.
pub const FATAL_STATUSES: usize = 197;
/// Lowest rate of an endpoint, in requests a second: one in 100 s.
pub const RATE_PER_SECOND_MIN: f64 = 0.01;
/// Highest rate of an endpoint, in requests a second: more than one node sends to one receiver.
pub const RATE_PER_SECOND_MAX: f64 = 10_000.0;
/// Requests that a rate lets start at once: a second of the highest.
pub const RATE_BURST_MAX: u32 = 10_000;
/// Highest `max_in_flight` of an endpoint: half of one node's slots, for one node holds it.
pub const MAX_IN_FLIGHT_MAX: u32 = 1000;

// Retry policies.

/// Attempts of a policy, the first included. The longest preset has 173.
pub const POLICY_ATTEMPTS: u32 = 1000;
/// Shortest delay of a policy: a tighter loop would be an attack on the receiver.
pub const POLICY_DELAY_MIN: Duration = Duration::from_millis(10);
/// Longest single delay of a policy.
pub const POLICY_DELAY_MAX: Duration = Duration::from_hours(7 * 24);
/// Growth of an exponential policy from one delay to the next, at most.
pub const POLICY_FACTOR_MAX: f64 = 10.0;
/// All delays of a policy together: no delivery lives longer.
pub const POLICY_SPAN_MAX: Duration = MAX_AGE_MAX;
/// Least delay that full jitter gives, else some retries would follow at once.
pub const FULL_JITTER_MIN: Duration = Duration::from_millis(100);
/// A receiver's Retry-After counts up to here: a typing error must not silence an endpoint for years.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);
/// Bytes of a Retry-After that are looked at. The longest date has 33.
pub const RETRY_AFTER_BYTES: usize = 64;

// The life of a delivery.

/// Shortest `max_age` of an endpoint.
pub const MAX_AGE_MIN: Duration = Duration::from_mins(1);
/// Longest `max_age`: as long as events are kept.
pub const MAX_AGE_MAX: Duration = Duration::from_hours(30 * 24);
/// Least default `max_age`: an endpoint down over a long weekend loses nothing.
pub const MAX_AGE_DEFAULT_MIN: Duration = Duration::from_hours(5 * 24);
/// What the default `max_age` adds to the span of the policy.
pub const MAX_AGE_BEYOND_SPAN: Duration = Duration::from_hours(24);

// One request to an endpoint.

/// Time limit of an attempt, over connecting, headers and body, unless the endpoint sets its own.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(15);
/// Shortest time limit that an endpoint may set.
pub const TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Longest time limit that an endpoint may set.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(30);
/// Bytes of a response's body that are read and kept; the rest is cut.
pub const RESPONSE_BODY_BYTES: usize = 16 * 1024;
/// Bytes of a response's headers.
pub const RESPONSE_HEADER_BYTES: usize = 32 * 1024;
/// Headers of a response that are kept.
pub const RESPONSE_HEADERS: usize = 64;
/// Headers of a response that are read at all; one with more is not an answer. It is hyper's own bound.
pub const RESPONSE_HEADERS_READ: usize = 100;
/// Bytes of a response's headers, names and values, that are kept.
pub const RESPONSE_HEADERS_KEPT_BYTES: usize = 8 * 1024;
/// Characters of the text of an error that are kept with an attempt.
pub const ERROR_DETAIL_CHARS: usize = 500;
/// Signatures of a header that a verifier looks at; a header with more is refused unread.
pub const SIGNATURES: usize = 32;
/// Bytes of a signature header that a verifier looks at.
pub const SIGNATURE_HEADER_BYTES: usize = 8 * 1024;

// Connections to endpoints.

/// How long a connection is kept idle. Receivers close theirs after 2 s (gunicorn) or 5 s (Node, Apache), and a request
/// written at that very moment is lost; the shorter, the rarer.
pub const EGRESS_IDLE: Duration = Duration::from_millis(1500);
/// Idle connections kept over all hosts: file descriptors of one node.
pub const EGRESS_IDLE_CONNECTIONS: usize = 512;
/// How often an HTTP/2 connection in use is asked whether it still lives, and how long it may take to say so.
pub const EGRESS_HTTP2_PING: Duration = Duration::from_secs(5);
/// How long an HTTP/2 connection that nobody needs any more has to take leave. One whose other side reads nothing would stay.
pub const EGRESS_HTTP2_FAREWELL: Duration = Duration::from_secs(1);
/// Bytes of an answer over HTTP/2 that its receiver may send unread: the protocol's own default, and four bodies as they are kept.
pub const EGRESS_HTTP2_STREAM_WINDOW: u32 = 65_535;
/// The same of all answers on one connection.
pub const EGRESS_HTTP2_WINDOW: u32 = 1024 * 1024;
/// Kept connections that a request may find closed before it opens one.
pub const EGRESS_STALE_CONNECTIONS: usize = 8;
/// Addresses of one name that are tried. All are vetted.
pub const EGRESS_ADDRESSES: usize = 8;
/// How long an address has before the next one is tried beside it (RFC 8305 recommends 250 ms).
pub const EGRESS_DIAL_STAGGER: Duration = Duration::from_millis(250);
/// Name servers that an operator may name.
pub const EGRESS_NAME_SERVERS: usize = 8;
/// All the time that finding a name's addresses may take.
pub const EGRESS_DNS: Duration = Duration::from_secs(5);
/// How long one name server has to answer one question.
pub const EGRESS_DNS_TRY: Duration = Duration::from_millis(1500);
/// How often a question that got no answer is asked again.
pub const EGRESS_DNS_RETRIES: usize = 2;
/// How long the other address family has once one has answered.
pub const EGRESS_DNS_SECOND_FAMILY: Duration = Duration::from_secs(1);
/// Bytes of the file of further root certificates. The bundle of a whole distribution has a quarter of a megabyte.
pub const EGRESS_ROOTS_BYTES: u64 = 4 * 1024 * 1024;
/// Questions under way on one connection to a name server.
pub const EGRESS_DNS_REQUESTS: usize = 1024;

// Accepting.

/// Events of one flush. Whoever comes meanwhile waits for it, and a row costs hardly less in a larger one.
pub const FLUSH_ROWS: usize = 128;
/// Bytes of one flush, with endpoint lists. A single event over it flushes alone.
pub const FLUSH_BYTES: usize = 1024 * 1024;
/// Events of a flush after which tenants that have more than a turn wait for the next, where others are in it whose events all
/// are: its time is theirs, too.
pub const FLUSH_ROWS_SHARED: usize = 32;
/// Bytes of such a flush.
pub const FLUSH_BYTES_SHARED: usize = 256 * 1024;
/// So many flushes after one with others in it are as small: some tenths of a second, under load.
pub const FLUSHES_SHARED: usize = 64;
/// Hand-over rows of one flush.
pub const FLUSH_HANDOVERS: usize = 5000;
/// How long a flush waits for company under load.
pub const FLUSH_LINGER: Duration = Duration::from_millis(2);
/// A flush of so many events waits for no more.
pub const FLUSH_COMPANY: usize = 64;
/// A flush waits when so many events may be expected in that time.
pub const FLUSH_COMPANY_EXPECTED: f64 = 4.0;
/// Bytes that an event may add to a flush and still be a small one; larger ones have a lane of their own.
pub const SMALL_EVENT_BYTES: usize = 64 * 1024;
/// Bytes of a tenant's turn in a flush of small events.
pub const SMALL_TURN_BYTES: i64 = 8 * 1024;
/// Bytes of a tenant's turn in a flush of large events.
pub const LARGE_TURN_BYTES: i64 = 256 * 1024;
/// How long a flush waits for another flush that is taking one of its keys: some commits' time, for meanwhile all
/// wait that are in the same flush.
pub const KEY_WAIT: Duration = Duration::from_millis(100);
/// The same in the flushes that find out which of a batch's keys it was.
pub const KEY_WAIT_AGAIN: Duration = Duration::from_millis(10);
/// How long the rows of such a batch are tried; after that the callers are told to come back.
pub const KEY_CONTEST: Duration = Duration::from_secs(1);
/// Events of a lane that wait for their flush or are in it. A tenant may have as many there as are left free beside it, alone
/// half; over it its callers get 503.
pub const ACCEPT_QUEUE_ROWS: usize = 8192;
/// The same in bytes.
pub const ACCEPT_QUEUE_BYTES: usize = 64 * 1024 * 1024;

// Dispatching and recording.

/// Requests under way to one endpoint from one node, unless the endpoint sets its own limit.
pub const IN_FLIGHT_PER_ENDPOINT: usize = 16;
/// Slots of one node: requests under way, a large payload counting for more than one.
pub const IN_FLIGHT_PER_NODE: usize = 2048;
/// Bytes of payload that one slot stands for: all slots together hold 128 MiB at most.
pub const SLOT_BYTES: usize = 64 * 1024;
/// A tenant may take up to this many times the slots that stay free beside it: alone three quarters of the node, each of ten
/// tenants a tenth of all but 60 slots, which are left for the eleventh.
pub const SLOTS_SHARE: usize = 3;
/// For each slot that an endpoint has, so many must be left to its tenant before it takes one more: of 200 endpoints that hang
/// each has seven, of 1,000 one or two, and there are slots for one that does not. An endpoint with none may always take
/// one that its tenant has.
pub const SLOTS_LEFT_PER_ENDPOINT: usize = 8;
/// Bytes of payloads that one tenant's deliveries hold in memory; the rest is parked. Less when little is free.
pub const DISPATCH_BYTES_PER_TENANT: usize = 64 * 1024 * 1024;
/// Bytes of payloads that all deliveries hold in memory.
pub const DISPATCH_BYTES: usize = 256 * 1024 * 1024;
/// Keys of pending rows that all lanes hold in memory; a few hundred bytes each.
pub const DISPATCH_ROWS: usize = 128 * 1024;
/// How long after its commit a delivery may wait in memory; then it goes to `pending`.
pub const UNSENT_FOR: Duration = Duration::from_secs(3);
/// Results waiting to be recorded; no request is started while there are more.
pub const UNRECORDED: usize = 4096;
/// How long a batch of results gathers.
pub const RECORD_LINGER: Duration = Duration::from_millis(20);
/// Rows per endpoint that one scan for due deliveries takes; the rest of that endpoint is parked.
pub const DUE_ROWS_PER_ENDPOINT: usize = 64;
/// Rows of one shard that one scan for due deliveries reads: more than one endpoint may have taken.
pub const DUE_ROWS_PER_SHARD: usize = 128;
/// Rows that one scan for due deliveries reads in all. With a probe for each shard it stays below 2,000 buffers.
pub const DUE_ROWS: usize = 1024;
/// Scans in a row while there is more to find.
pub const DUE_SCANS: usize = 16;
/// Rows of one endpoint that are parked by one statement; a larger pile takes several.
pub const PARK_ROWS: i64 = 10_000;
/// Parked rows of one endpoint that a drain queues at most: keys, without payloads.
pub const PARKED_PER_ENDPOINT: usize = 512;
/// At so many queued rows a drain is asked for more: enough for the time that fetching them takes.
pub const PARKED_LOW: usize = 128;
/// Pending rows that are read for sending in one statement.
pub const LOAD_ROWS: usize = 64;
/// Bytes of payloads that one such statement reads, and one payload more; what is over waits for the next.
pub const LOAD_BYTES: usize = 1024 * 1024;
/// How long reading rows for sending may take.
pub const LOAD_WAIT: Duration = Duration::from_secs(5);
/// How long a request that a rate let through waits for its token, at most: it has a slot. More than reading its row may
/// have put it behind others.
pub const ADMISSION_WAIT: Duration = Duration::from_secs(1);
/// How often it asks for one: as often as there are requests of its endpoint that may be before it.
pub const ADMISSIONS: usize = 16;
/// Statements at a time, from the shared pool, that set aside what cannot be sent now.
pub const SETTING_ASIDE: usize = 1;

/// Requests under way on one node that somebody asked for to test an endpoint: each has a payload of its own in memory.
pub const TEST_SENDS: usize = 64;
/// The same of one tenant: tests are for people to look at.
pub const TEST_SENDS_PER_TENANT: usize = 4;

// Endpoints that are not well.

/// The latest attempts of an endpoint that are looked through for a success before its circuit opens.
pub const CIRCUIT_LOOKS_BACK: i64 = 1_000;
/// Failed attempts in a row that open a circuit, at least.
pub const CIRCUIT_FAILURES: u32 = 10;
/// How long they must have lasted.
pub const CIRCUIT_LASTED: Duration = Duration::from_mins(1);
/// How many events they must have been of: a poisonous one opens no circuit.
pub const CIRCUIT_EVENTS: usize = 3;
/// How long an endpoint is probed in vain until it is disabled.
pub const CIRCUIT_GIVEN_UP: Duration = Duration::from_hours(5 * 24);
/// When an open circuit is probed first.
pub const PROBE_FIRST: Duration = Duration::from_secs(5);
/// The longest time between two probes.
pub const PROBE_LONGEST: Duration = Duration::from_mins(10);
/// Requests a second to an endpoint that has begun to refuse them.
pub const PACE_FIRST: f64 = 1.0;
/// The fewest, however much it refuses.
pub const PACE_LEAST: f64 = 0.1;
/// With so many it is held back no longer.
pub const PACE_MOST: f64 = 1000.0;
/// How many more a second each one that is taken brings, as long as nothing was refused since: e times as many each second.
pub const PACE_RISES: f64 = 1.0;
/// The same after that: a tenth more each second.
pub const PACE_GROWS: f64 = 0.1;
/// Of so many answers in a row …
pub const PACE_ANSWERS: u32 = 16;
/// … so many refusals halve its pace.
pub const PACE_REFUSED: u32 = 3;
/// For how long after that requests begin whose answers do not count: limits of receivers are most often of a second.
pub const PACE_HOLD: Duration = Duration::from_secs(1);
/// How long after the last refusal a pace is forgotten.
pub const PACE_KEPT: Duration = Duration::from_mins(10);
/// How long it is kept that an endpoint is well again: nodes that were away for less hear of it.
pub const HEALTH_KEPT: Duration = Duration::from_mins(10);
/// How much earlier than the last look a look at what changed begins: longer than a statement that changes may take.
pub const HEALTH_OVERLAP: Duration = Duration::from_secs(15);

// Nodes.

/// How long a lease holds without renewal.
pub const LEASE_TTL: Duration = Duration::from_secs(8);
/// How often a lease is renewed, and the watermark written with it.
pub const WATERMARK_EVERY: Duration = Duration::from_secs(1);
/// How long a renewal may take. A node may begin nothing when half a lease has gone by since it asked, so a later answer is
/// worth little, and what is left of the lease's life is for asking again on another connection.
pub const LEASE_RENEWAL_WAIT: Duration = Duration::from_secs(3);
/// How long closing lapsed streams and sharing the shards waits for a lock, each: another node has it, and the next renewal asks
/// again.
pub const SHARING_LOCK_WAIT: Duration = Duration::from_millis(300);
/// How long both may take together. With the second between two renewals it leaves a renewal one second of the half of its life
/// in which a node may begin something.
pub const SHARING_WAIT: Duration = Duration::from_secs(2);
/// Events, of all streams, that one window of a recovery reads.
pub const RECOVER_EVENTS: i64 = 20_000;
/// Deliveries that one window of a recovery probes, and may write.
pub const RECOVER_DELIVERIES: i64 = 10_000;
/// The shortest window, in milliseconds. It is taken whatever it holds: one event may have as many deliveries as that.
pub const RECOVER_WINDOW_LEAST_MS: i64 = 1;
/// The longest window, in milliseconds: a day, as a leaf of the log.
pub const RECOVER_WINDOW_MOST_MS: i64 = 24 * 60 * 60 * 1000;
/// How often a node looks for changes of the configuration.
pub const CONFIG_POLL: Duration = Duration::from_millis(250);
/// After how long a change of the configuration is in force on every node that reaches the database and is not overloaded:
/// a look and a half, and the reading.
pub const CHANGE_IN_FORCE: Duration = Duration::from_millis(600);
/// Slots that endpoints are spread over: the values of one byte.
pub const SHARDS: usize = 256;

// Calls.

/// Connections at the same time, over all listeners; more wait in the kernel's queue.
pub const CONNECTIONS: usize = 8192;
/// Connections that the kernel keeps for a listener until they are accepted; it keeps no more than `net.core.somaxconn`.
pub const LISTEN_BACKLOG: u32 = 4096;
/// A request's head must be complete in this time; a connection without a request is closed after it. Longer
/// than the minute for which proxies commonly keep a connection, so that it is theirs to close.
pub const REQUEST_HEAD_WAIT: Duration = Duration::from_secs(75);
/// Bytes of a request's head.
pub const REQUEST_HEAD_BYTES: usize = 64 * 1024;
/// Header fields of a request.
pub const REQUEST_HEADERS: usize = 100;
/// How long a body may take to arrive, whole. A client that sends a byte now and then holds a connection no
/// longer than this.
pub const BODY_WAIT: Duration = Duration::from_secs(30);
/// Addresses of `X-Forwarded-For` that are looked at: more proxies than stand in a row.
pub const FORWARDED_HOPS: usize = 16;
/// How long the database may take to answer when `/readyz` asks.
pub const READINESS_WAIT: Duration = Duration::from_secs(2);
/// Keys whose last use waits to be written; that of others is forgotten until they are used again.
pub const KEY_USES: usize = 16_384;
/// How often uses of keys are written, and how far apart two written uses of a key are.
pub const KEY_USE_EVERY: Duration = Duration::from_mins(1);
/// Keys of one statement that writes their last use.
pub const KEY_USE_ROWS: usize = 1024;
/// How often a run of refusals that goes on is told in the log.
pub const REFUSALS_TOLD_EVERY: Duration = Duration::from_secs(10);
/// For how long nothing must have been refused until a run of refusals counts as over.
pub const REFUSALS_QUIET: Duration = Duration::from_secs(10);

// Stopping.

/// How long a node may take to end, from the moment at which it no longer listens. All that follows shares it; only a managed
/// PostgreSQL is stopped after it. Orchestrators commonly kill after 30 s, and what is killed hands nothing over.
pub const SHUTDOWN_WAIT: Duration = Duration::from_secs(30);
/// How long the pause before that may be that an operator sets: longer than load balancers take to notice.
pub const SHUTDOWN_PAUSE_MOST: Duration = Duration::from_mins(5);
/// How long a connection is still heard on which no request is under way: one may be on its way, sent before its sender could know.
pub const SHUTDOWN_LAST_REQUESTS: Duration = Duration::from_millis(500);
/// Requests of callers that are under way: longer than an event may wait for the database, so that its caller hears 503.
pub const SHUTDOWN_CALLERS: Share = Share {
    longest: Duration::from_secs(12),
    leaves: Duration::from_secs(18),
};
/// What is queued is written, and the flush that is under way is settled.
pub const SHUTDOWN_FLUSH: Share = Share {
    longest: Duration::from_secs(10),
    leaves: Duration::from_secs(15),
};
/// Requests to endpoints that are out: more than an endpoint's own limit is by default, less than it may be.
pub const SHUTDOWN_REQUESTS: Share = Share {
    longest: SHUTDOWN_WAIT,
    leaves: Duration::from_secs(5),
};
/// Results are recorded, and what was queued is brought to `pending`.
pub const SHUTDOWN_RECORD: Share = Share {
    longest: Duration::from_secs(10),
    leaves: Duration::from_secs(3),
};
/// The steps of loops that are under way.
pub const SHUTDOWN_STEPS: Share = Share {
    longest: Duration::from_secs(5),
    leaves: Duration::from_secs(2),
};
/// The stream is closed and its shards are given back.
pub const SHUTDOWN_LEAVE: Share = Share {
    longest: Duration::from_secs(5),
    leaves: Duration::from_secs(1),
};
/// The pools wait for statements under way: those that are answered at all have ended by then.
pub const SHUTDOWN_CLOSE: Share = Share {
    longest: Duration::from_secs(5),
    leaves: Duration::ZERO,
};

// Reading.

/// Rows of a list when nobody asks for another number.
pub const LIST_DEFAULT: u32 = 50;
/// Rows of a list at most.
pub const LIST_MAX: u32 = 250;
/// How many deliveries an event shows; the others are in the list of deliveries.
pub const EVENT_DELIVERIES: u32 = 100;
/// How many attempts a delivery shows; the others are in the list of attempts.
pub const DELIVERY_ATTEMPTS: u32 = 100;
/// Lost deliveries that `posthorn doctor` prints.
pub const LOST_SHOWN: i64 = 100;

// The database.

/// Time limit of a statement, by the server.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a statement waits for a lock.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a transaction may lie idle until the server ends it and its locks are free. None of ours is ever meant to be idle: its
/// statements follow one another at once, and between them nobody else is waited for. One that lies so long is of a node that
/// stands still, or that nobody hears any more, and the others wait for its rows. Less than half of a lease: a node that stood
/// still for longer may begin nothing anyway. More than a pause of a busy machine.
pub const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(3);
/// How long the server waits for its answer to be taken; after it the connection is closed and its locks are free. No step on the
/// other side waits for longer than [`STEP`].
pub const SERVER_UNHEARD: Duration = Duration::from_secs(12);
/// After how long a silence, and how often then, the server asks whether the other side is still there: a connection that nobody
/// has any more goes within two minutes.
pub const SERVER_KEEPALIVE: Duration = Duration::from_secs(10);
/// How long a given database may be away at start: it may be starting, too.
pub const DATABASE_START_WAIT: Duration = Duration::from_secs(30);
/// How long a request waits for a connection.
pub const DATABASE_WAIT: Duration = Duration::from_secs(5);
/// How long one statement of the engine, or one step of few, may take, on this side: a little more than a statement may by the
/// server's own limit. After it the connection counts as one that nobody answers on any more.
pub const STEP: Duration = Duration::from_secs(12);
/// The same for steps that are many statements, each bounded by itself: recovery, sweeps, leaves.
pub const LONG_STEP: Duration = Duration::from_mins(10);
/// How long a connection that comes back to its pool, or is taken from it, has to say that it still lives.
pub const DATABASE_RETURN: Duration = Duration::from_secs(2);
/// How long the batcher waits for the answer to a flush: a little longer than the statement may take.
pub const FLUSH_WAIT: Duration = Duration::from_secs(12);
/// How long a caller waits for its event to be durable; then 503, whatever becomes of it.
pub const ACCEPT_WAIT: Duration = Duration::from_secs(10);
/// How often roles are looked at while somebody prepares another database of the cluster at the same moment.
pub const ROLE_LOOKS: usize = 8;
/// How long a migration waits for a table that is in use: meanwhile everybody else waits behind it.
pub const MIGRATION_LOCK_WAIT: Duration = Duration::from_millis(500);
/// How long it lets the others go first then.
pub const MIGRATION_PAUSE: Duration = Duration::from_secs(1);
/// How often it asks: for about a minute.
pub const MIGRATION_LOOKS: u32 = 40;
/// Payloads above this many bytes are compressed in the log.
pub const COMPRESS_ABOVE: usize = 2048;
/// Fresh deliveries of one endpoint that wait in memory; the rest is parked.
pub const FRESH_PER_ENDPOINT: usize = 4096;
/// Fresh events between the batcher and the dispatcher. When it is full, accept waits.
pub const FRESH_EVENTS: usize = 4096;
/// Fresh deliveries that the dispatcher queues before it starts requests again.
pub const TAKEN_AT_ONCE: usize = 4096;
/// Requests that the dispatcher starts before others that are under way get on: whoever is ready next waits for so many.
pub const STARTED_AT_ONCE: usize = 64;
/// A fresh delivery that has waited for so long when it is its endpoint's turn puts the endpoint behind: less than people notice,
/// and well before it would be set aside.
pub const BEHIND_AFTER: Duration = Duration::from_millis(250);
/// With fewer fresh deliveries waiting for this node than that, nothing is behind: any machine sends them in a moment, and what keeps
/// them is not that too much was accepted.
pub const BEHIND_LEAST: usize = 1024;
/// How often the dispatcher looks which endpoints are behind.
pub const BEHIND_LOOK: Duration = Duration::from_millis(20);
/// How long an event waits to be accepted because endpoints of its are behind.
pub const HELD_BACK: Duration = Duration::from_secs(1);
/// Deliveries that are let in after a look at least, however few were started before it.
pub const LET_IN_LEAST: usize = 128;
/// The same of one tenant, before the next one has its turn.
pub const LET_IN_TURN: usize = 16;
/// A tenant that holds more than this many times the slots that its requests freed in the last half second counts as slow: its
/// receivers, and not this node, keep its deliveries waiting.
pub const SLOTS_TURNED: usize = 2;
/// Bytes that accepted events may take of a node's memory until their last delivery is sent, or set aside. A tenant has as
/// much as is left free beside it, and is told to come again when it has more: alone half, each of ten an eleventh.
pub const ACCEPTED_BYTES: usize = 512 * 1024 * 1024;
/// Bytes that an accepted event takes beside its payload, and each of its deliveries.
pub const ACCEPTED_EVENT_BYTES: usize = 512;
/// The same of each delivery.
pub const ACCEPTED_DELIVERY_BYTES: usize = 256;
/// Results of one record transaction.
pub const RECORD_ROWS: usize = 1024;
/// How long a record transaction waits for rows that another holds: some commits' time, for all results wait meanwhile. Then the
/// others go ahead.
pub const RECORD_LOCK_WAIT: Duration = Duration::from_millis(500);
/// The same in the transactions that find out which results it is that have to wait.
pub const RECORD_LOCK_WAIT_AGAIN: Duration = Duration::from_millis(10);
/// Such transactions between two batches that are new: together they keep these waiting for a fifth of a second.
pub const RECORD_LOCKED_LOOKS: usize = 16;
/// How often due rows are looked for.
pub const DUE_POLL: Duration = Duration::from_millis(200);
/// How often the scan for due rows begins anew from the earliest: rows commit behind a cursor.
pub const DUE_RESTART: Duration = Duration::from_secs(15);
/// How often parked rows are swept, drained or ended.
pub const PARK_SWEEP: Duration = Duration::from_millis(200);
/// Pages of endpoints with parked rows that one sweep looks through; the next goes on behind them.
pub const PARK_SWEEP_PAGES: usize = 4;
/// Endpoints of one such page.
pub const PARK_SWEEP_ENDPOINTS: i64 = 256;
/// Those of one shard in a page: a crowd in one does not hide the others.
pub const PARK_SWEEP_PER_SHARD: i64 = 32;
/// How long a key that has expired is left alone: longer than a flush that saw it may still be under way.
pub const EXPIRE_AFTER: Duration = Duration::from_mins(1);
/// Keys that one statement deletes.
pub const EXPIRE_ROWS: i64 = 2000;
/// API keys in force of one tenant. Every node holds all of them in memory.
pub const KEYS_PER_TENANT: usize = 200;
/// Days that entries of the audit log are kept: over a year, so that one audit reaches back to the one before. The database's own
/// policy has the same number: nothing younger can be deleted.
pub const AUDIT_DAYS: i32 = 400;
/// Statements of one step that deletes keys.
pub const EXPIRE_BATCHES: usize = 1000;

// Housekeeping.

/// Fewest days that anything may be kept.
pub const RETENTION_DAYS_MIN: u16 = 1;
/// Most days that anything may be kept: each is a partition more that every plan looks at.
pub const RETENTION_DAYS_MAX: u16 = 365;
/// Days that events and attempts are kept unless somebody sets another number.
pub const RETENTION_EVENTS_DAYS: u16 = 30;
/// Days that dead letters are kept unless somebody sets another number: long enough to find out what went wrong.
pub const RETENTION_DEAD_LETTERS_DAYS: u16 = 90;
/// How often every node looks whether housekeeping is its turn; whoever has it deletes keys that have expired.
pub const HOUSEKEEPING_LOOK: Duration = Duration::from_mins(1);
/// How often leaves are looked after and retention goes on.
pub const HOUSEKEEPING_EVERY: Duration = Duration::from_hours(1);
/// How long a node has housekeeping to itself: longer than its turn can last, so that only one that hangs loses it.
pub const HOUSEKEEPING_HOLD: Duration = Duration::from_mins(15);
/// How long housekeeping waits for those who are making something pending, while the others wait behind it.
pub const GATE_WAIT: Duration = Duration::from_secs(2);
/// Rows that one statement of housekeeping walks over by key.
pub const KEEP_WALK_ROWS: i64 = 2000;
/// Events that one statement copies: 64 MiB at most.
pub const KEEP_COPY_EVENTS: usize = 64;
/// Rows that one statement of housekeeping removes while nothing may become pending.
pub const KEEP_REMOVE_ROWS: usize = 500;
/// How often a lock that a reader holds is asked for in one round, and how long the pause between is.
pub const LEAF_TRIES: usize = 5;
/// The pause between: traffic that waited behind the last try goes first.
pub const LEAF_PAUSE: Duration = Duration::from_millis(500);
/// How long the log of configuration changes is kept; a node that is further behind loads everything.
pub const CONFIG_LOG_LIFE: Duration = Duration::from_hours(1);
/// How long the row of a stream that is recovered is kept, for whoever looks into what happened.
pub const STREAM_LIFE: Duration = Duration::from_hours(7 * 24);
/// How often the gauges that ask the database are read.
pub const ALARM_EVERY: Duration = Duration::from_secs(15);

// A managed PostgreSQL.

/// How long its process may run without answering at all.
pub const MANAGED_ANSWER_WAIT: Duration = Duration::from_mins(1);
/// How long a process that is there already may be silent before it is taken for another program's.
pub const MANAGED_OURS_WAIT: Duration = Duration::from_secs(5);
/// How long a recovery after a crash may take.
pub const MANAGED_RECOVERY_WAIT: Duration = Duration::from_mins(10);
/// How long a stop may take: it writes out what is in memory.
pub const MANAGED_STOP_WAIT: Duration = Duration::from_mins(2);
/// How long to wait for a lock that another start or stop of the same cluster holds.
pub const MANAGED_LOCK_WAIT: Duration = Duration::from_mins(2);
/// Lines of PostgreSQL's log that go into an error.
pub const MANAGED_LOG_LINES: usize = 8;
