# Sends a user's queries to the user's shard.
#
#   in_shard_of(user) { Photo.create!(...) }
#
# Rails chooses the server, the search path the schema.  The path is set for one
# transaction, so that it neither gets lost nor stays behind in PgBouncer's
# transaction mode.
require "active_record"
require "pg"

SHARDS = 2000
HOMES = Hash.new("")    # of shards that do not live on the first server

# SN001: the shard has moved.  SN002: it is not open there yet.  3F000, 42P01: the
# copy that the move has left has been renamed, or dropped.
REFUSALS = %w[SN001 SN002 3F000 42P01].freeze

# Rails 7.1 has no other handling, nor this setting.
ActiveRecord::Base.legacy_connection_handling = false if ActiveRecord.version < Gem::Version.new("7.1")

# The block is one transaction.  If the server refuses it since the shard has moved,
# nothing of it has happened, and it is done again at the new home.
def in_shard_of(user, seconds: 30)
  shard = user % SHARDS
  deadline = Time.now + seconds
  begin
    on_server(HOMES[shard]) do |connection|
      ActiveRecord::Base.transaction do
        connection.execute("SET LOCAL search_path = insta#{shard}")
        yield shard
      end
    end
  rescue ActiveRecord::StatementInvalid, ActiveRecord::ConnectionNotEstablished => e
    state = e.cause.respond_to?(:result) && e.cause.result&.error_field(PG::PG_DIAG_SQLSTATE)
    HOMES.delete(shard) if !state || state.start_with?("57P", "25006")    # that server may be no more; the first one knows
    raise unless REFUSALS.include?(state) && Time.now < deadline

    home = on_server(HOMES[shard]) { |c| c.select_value("SELECT snowid.shard_home(#{shard})") }
    raise if home == "missing" || (home == "here" && !state.start_with?("SN"))

    HOMES[shard] = home unless %w[here closed].include?(home)
    sleep 0.1 if state == "SN002" || home == "closed"
    retry
  end
end

# A connection to the server of a home, a connection string as the registry has it.
# What it lacks is from PGHOST and so on.
def on_server(home)
  handler = ActiveRecord::Base.connection_handler
  server = home.empty? ? :first : home.to_sym
  unless handler.retrieve_connection_pool("ActiveRecord::Base", role: :writing, shard: server)
    given = PG::Connection.conninfo_parse(home).to_h { |o| [o[:keyword].to_sym, o[:val]] }.compact
    handler.establish_connection(
      { adapter: "postgresql", host: ENV["PGHOST"], port: ENV["PGPORT"], username: ENV["PGUSER"],
        database: given.delete(:dbname) || ENV["PGDATABASE"],
        prepared_statements: false }.merge(given),    # for PgBouncer before 1.21
      role: :writing, shard: server
    )
  end
  ActiveRecord::Base.connected_to(role: :writing, shard: server) { yield ActiveRecord::Base.connection }
end
